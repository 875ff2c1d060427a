package outboxtest

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"example.com/outbox"
	"github.com/stretchr/testify/require"
)

func TestOperationsAreAllThatNeedTheDatabase(t *testing.T) {
	var want []string
	store := reflect.TypeFor[*outbox.Store]()
	for i := range store.NumMethod() {
		name := store.Method(i).Name
		if !strings.HasSuffix(name, "Tx") && !slices.Contains([]string{"Close", "Now", "Subscribe"}, name) {
			want = append(want, name)
		}
	}
	require.Equal(t, want, slices.Sorted(maps.Keys(operations(&suite{}, outbox.Ref{}))))
}
