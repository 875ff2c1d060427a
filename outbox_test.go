package outbox_test

import (
	"context"
	"testing"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/stretchr/testify/require"
	_ "github.com/tursodatabase/go-libsql"
)

// The specification, over every kind of database that needs no server.
func TestMemory(t *testing.T) { outboxtest.Run(t, openMemory) }

func TestFile(t *testing.T) { outboxtest.Run(t, openFile) }

func TestHostDatabase(t *testing.T) {
	outboxtest.Run(t, func(t *testing.T, opts *outbox.Options) *outbox.Store {
		store := outbox.New(openHost(t), opts)
		require.NoError(t, store.Migrate(context.Background()))
		return store
	})
}
