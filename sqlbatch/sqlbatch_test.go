package sqlbatch_test

import (
	"errors"
	"fmt"
	"testing"

	"example.com/outbox/sqlbatch"
	"github.com/stretchr/testify/require"
)

type failure struct {
	code          string
	nothing, lost bool
}

func (f failure) Error() string     { return f.code }
func (f failure) Code() string      { return f.code }
func (f failure) NothingDone() bool { return f.nothing }
func (f failure) Lost() bool        { return f.lost }

func TestErrorsAreFoundInAChain(t *testing.T) {
	for _, err := range []error{nil, errors.New("other")} {
		require.Empty(t, sqlbatch.Code(err))
		require.False(t, sqlbatch.NothingDone(err))
		require.False(t, sqlbatch.Lost(err))
	}
	err := fmt.Errorf("insert: %w", failure{code: sqlbatch.CodeBusy, nothing: true})
	require.Equal(t, sqlbatch.CodeBusy, sqlbatch.Code(err))
	require.True(t, sqlbatch.NothingDone(err))
	require.False(t, sqlbatch.Lost(err))
	require.True(t, sqlbatch.Lost(errors.Join(errors.New("other"), failure{lost: true})))
}

func TestTheZeroConditionHoldsAlways(t *testing.T) {
	require.Equal(t, sqlbatch.KindAlways, sqlbatch.Condition{}.Kind)
	require.Equal(t, sqlbatch.Condition{Kind: sqlbatch.KindAnd, Of: []sqlbatch.Condition{
		{Kind: sqlbatch.KindOK, Step: 1},
		{Kind: sqlbatch.KindNot, Of: []sqlbatch.Condition{{Kind: sqlbatch.KindAutocommit}}},
	}}, sqlbatch.And(sqlbatch.OK(1), sqlbatch.Not(sqlbatch.Autocommit())))
}
