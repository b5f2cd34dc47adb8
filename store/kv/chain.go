package kv

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"navarch.io/navarch/store/model"
)

// Place is where a complete head stands among all heads that the leaders of a mesh have written. It is what a restore of etcd is judged
// by: revisions and the cluster's id say nothing of that, since a restore may keep them, change them, or raise them (etcdutl snapshot
// restore --bump-revision; issue 12, item 14). The zero Place is that of a head which an older build wrote.
type Place struct {
	Chain uint64 // made at random by the leader that found no chain, carried on by all after it; 0: not known
	Term  uint64 // of the leader that wrote the head: each full comparison with what is stored begins a higher one
	Seq   uint64 // counts the batches of a leader
}

// maxTerm is above all terms that are believed: who begins the next one must be able to count on.
const maxTerm = 1 << 62

// Known tells whether it says anything.
func (p Place) Known() bool { return p.Chain != 0 }

// Before tells whether it is an earlier place of the same chain.
func (p Place) Before(other Place) bool {
	return p.Known() && p.Chain == other.Chain && cmp.Or(cmp.Compare(p.Term, other.Term), cmp.Compare(p.Seq, other.Seq)) < 0
}

// sameTerm tells whether both are of one term of one chain, or neither is known.
func (p Place) sameTerm(other Place) bool { return p.Chain == other.Chain && p.Term == other.Term }

// Next is the first place of a new term after p, in its chain if it has one: after seen too, as far as that is of the same chain. Terms
// are milliseconds since 1970 where nothing speaks against it, so that a leader that knows nothing of what was written before a restore
// is above that all the same; in a store that goes on their order needs no clock.
func (p Place) Next(seen Place, now time.Time) Place {
	clock := uint64(max(0, now.UnixMilli()))
	next := Place{Chain: cmp.Or(p.Chain, seen.Chain), Term: max(p.Term+1, clock)}
	if seen.Chain == next.Chain {
		next.Term = max(next.Term, seen.Term+1)
	}
	if next.Term >= maxTerm { // nobody gets there by counting
		next = Place{Term: clock}
	}
	for next.Chain == 0 {
		next.Chain = rand.Uint64()
	}
	return next
}

// String is what ParsePlace reads.
func (p Place) String() string { return fmt.Sprintf("%016x.%d.%d", p.Chain, p.Term, p.Seq) }

// ParsePlace reads what String wrote; an error where that is no known place.
func ParsePlace(s string) (Place, error) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return Place{}, fmt.Errorf("%q is no place of a head: want CHAIN.TERM.BATCH", s)
	}
	chain, err := strconv.ParseUint(parts[0], 16, 64)
	term, err2 := strconv.ParseUint(parts[1], 10, 64)
	seq, err3 := strconv.ParseUint(parts[2], 10, 64)
	if err := errors.Join(err, err2, err3); err != nil {
		return Place{}, fmt.Errorf("%q is no place of a head: %w", s, err)
	}
	p := placeOf(&model.PlaceValue{Chain: chain, Term: term, Seq: seq})
	if !p.Known() {
		return Place{}, fmt.Errorf("%q is no place of a head", s)
	}
	return p, nil
}

// value is the place in a head.
func (p Place) value() *model.PlaceValue {
	if !p.Known() {
		return nil
	}
	return &model.PlaceValue{Chain: p.Chain, Term: p.Term, Seq: p.Seq}
}

// placeOf reads what a head says. A term that cannot be counted on from is as none: the next leader begins another chain.
func placeOf(v *model.PlaceValue) Place {
	if v.GetChain() == 0 || v.GetTerm() >= maxTerm {
		return Place{}
	}
	return Place{Chain: v.Chain, Term: v.Term, Seq: v.Seq}
}

// ErrRolledBack: the newest state in the store is older than the one that was read before.
var ErrRolledBack = errors.New("the store's newest state is older than the one that was read")

// CheckHead says whether a store that answers like this has nothing older than what was read before, of which at and place are the newest. A
// head of the same chain is judged by its place alone. Else, and where older builds write heads, it has to be the same cluster at no
// earlier revision. The errors: ErrRolledBack, ErrRegressed, ErrClusterChanged.
func CheckHead(at Position, place Place, stat Stat) error {
	head := stat.Head.Place
	switch {
	case head.Before(place):
		return fmt.Errorf("%w (%v after %v)", ErrRolledBack, head, place)
	case head.Known() && head.Chain == place.Chain:
		return nil
	}
	return at.Check(stat)
}
