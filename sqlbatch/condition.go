package sqlbatch

// Condition says whether a step runs, in terms of what became of steps before
// it. The zero value holds always. The functions below make the others; the
// fields are for drivers that read them.
type Condition struct {
	Kind Kind
	Step int         // for KindOK and KindFailed: the position of an earlier step
	Of   []Condition // for KindNot, KindAnd and KindOr
}

// Kind is the kind of a Condition.
type Kind int

// The kinds of conditions.
const (
	KindAlways Kind = iota
	KindOK
	KindFailed
	KindNot
	KindAnd
	KindOr
	KindAutocommit
)

// OK holds if the step at this position ran and succeeded.
func OK(step int) Condition { return Condition{Kind: KindOK, Step: step} }

// Failed holds if the step at this position ran and failed. It does not hold for
// a step that did not run.
func Failed(step int) Condition { return Condition{Kind: KindFailed, Step: step} }

// Not holds if the condition does not.
func Not(c Condition) Condition { return Condition{Kind: KindNot, Of: []Condition{c}} }

// And holds if all of the conditions do, and if there are none.
func And(all ...Condition) Condition { return Condition{Kind: KindAnd, Of: all} }

// Or holds if one of the conditions does.
func Or(any ...Condition) Condition { return Condition{Kind: KindOr, Of: any} }

// Autocommit holds if no transaction is open when the step's turn comes.
func Autocommit() Condition { return Condition{Kind: KindAutocommit} }
