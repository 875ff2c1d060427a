package sqlbatch

// Condition says whether a step runs, in terms of what became of steps before
// it. The zero value holds always. The functions below make the others; the
// fields are for drivers that read them.
type Condition struct {
	Kind Kind
	Step int         // for KindOK: the position of an earlier step
	Of   []Condition // for KindNot, KindAnd and KindOr
}

// Kind is the kind of a Condition.
type Kind int

// The kinds of conditions.
const (
	KindAlways Kind = iota
	KindOK
	KindNot
	KindAnd
	KindOr
	KindAutocommit
)

// OK holds if the step at this position ran and succeeded. There is none for a
// step that failed, as servers differ about one that did not run: Not(OK(step))
// holds for both.
func OK(step int) Condition { return Condition{Kind: KindOK, Step: step} }

// Not holds if the condition does not.
func Not(c Condition) Condition { return Condition{Kind: KindNot, Of: []Condition{c}} }

// And holds if all of the conditions do, and if there are none.
func And(all ...Condition) Condition { return Condition{Kind: KindAnd, Of: all} }

// Or holds if one of the conditions does.
func Or(any ...Condition) Condition { return Condition{Kind: KindOr, Of: any} }

// Autocommit holds if no transaction is open when the step's turn comes.
func Autocommit() Condition { return Condition{Kind: KindAutocommit} }
