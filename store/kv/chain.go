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

// Place is the position of a complete head in the sequence of heads that the leaders write. A head is the etcd value
// that each batch of records replaces. A Place shows whether a restore of etcd lost state. Revisions and the cluster's
// id do not show this, since a restore may keep, change or raise them (etcdutl snapshot restore --bump-revision). Heads
// of older builds have the zero Place.
type Place struct {
	Chain uint64 // random number of the first leader of the chain, copied by later leaders; 0: not known
	Term  uint64 // term of the leader; each full comparison with the stored records begins a higher term
	Seq   uint64 // number of the batch within the term
}

// maxTerm is above all valid terms, so that the next leader can still add one.
const maxTerm = 1 << 62

// Known reports whether p has a chain. Heads of older builds have no chain.
func (p Place) Known() bool { return p.Chain != 0 }

// Before reports whether p is earlier than the other place in the same chain. It is false for unknown places.
func (p Place) Before(other Place) bool {
	return p.Known() && p.Chain == other.Chain && cmp.Or(cmp.Compare(p.Term, other.Term), cmp.Compare(p.Seq, other.Seq)) < 0
}

// sameTerm reports whether both places are of one term of one chain, or both are unknown.
func (p Place) sameTerm(other Place) bool { return p.Chain == other.Chain && p.Term == other.Term }

// Next returns the place with which a new term begins, with Seq 0. The receiver p is the stored place, and the argument
// seen is the newest place that this process has read. The new term is above p's term, and above seen's term if both
// are in one chain. The new chain is the chain of p, or else of seen, or else a random one. If the term would reach
// maxTerm, a new chain begins.
//
// The term is at least the milliseconds since 1970, so that even a leader that does not know of lost heads exceeds
// their terms. Within a store that was never restored, the order of terms needs no clock.
func (p Place) Next(seen Place, now time.Time) Place {
	clock := uint64(max(0, now.UnixMilli()))
	next := Place{Chain: cmp.Or(p.Chain, seen.Chain), Term: max(p.Term+1, clock)}
	if seen.Chain == next.Chain {
		next.Term = max(next.Term, seen.Term+1)
	}
	if next.Term >= maxTerm { // no leader counts this far, so the stored term is invalid
		next = Place{Term: clock}
	}
	for next.Chain == 0 {
		next.Chain = rand.Uint64()
	}
	return next
}

// String returns the form that ParsePlace reads: CHAIN.TERM.BATCH, the chain in hexadecimal.
func (p Place) String() string { return fmt.Sprintf("%016x.%d.%d", p.Chain, p.Term, p.Seq) }

// ParsePlace parses the form of String. An error means that the text is malformed, the chain is 0, or the term is
// maxTerm or more.
func ParsePlace(s string) (Place, error) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return Place{}, fmt.Errorf("place %q of a head: want CHAIN.TERM.BATCH", s)
	}
	chain, err := strconv.ParseUint(parts[0], 16, 64)
	term, err2 := strconv.ParseUint(parts[1], 10, 64)
	seq, err3 := strconv.ParseUint(parts[2], 10, 64)
	if err := errors.Join(err, err2, err3); err != nil {
		return Place{}, fmt.Errorf("place %q of a head: %w", s, err)
	}
	p := placeOf(&model.PlaceValue{Chain: chain, Term: term, Seq: seq})
	if !p.Known() {
		return Place{}, fmt.Errorf("place %q of a head: the chain is 0, or the term is too large", s)
	}
	return p, nil
}

// value encodes the place for a head; nil if the place is not known.
func (p Place) value() *model.PlaceValue {
	if !p.Known() {
		return nil
	}
	return &model.PlaceValue{Chain: p.Chain, Term: p.Term, Seq: p.Seq}
}

// placeOf decodes the place of a head. A term of maxTerm or more counts as unknown, and the next leader begins another
// chain.
func placeOf(v *model.PlaceValue) Place {
	if v.GetChain() == 0 || v.GetTerm() >= maxTerm {
		return Place{}
	}
	return Place{Chain: v.Chain, Term: v.Term, Seq: v.Seq}
}

// ErrRolledBack means that the store's newest head is earlier in its chain than a head that was read before.
var ErrRolledBack = errors.New("the store's newest state is older than the one that was read")

// CheckHead returns an error if a store with this stat is older than the state that was read before. The parameters
// position and place are the newest ones of that state. If both heads are in one chain, their places alone decide.
// Otherwise, and for heads of older builds, the store must be the same cluster at the same or a later revision. If
// position.Cluster is 0, any cluster is accepted. Errors: ErrRolledBack, ErrRegressed, ErrClusterChanged.
func CheckHead(position Position, place Place, stat Stat) error {
	head := stat.Head.Place
	switch {
	case head.Before(place):
		return fmt.Errorf("%w (%v after %v)", ErrRolledBack, head, place)
	case head.Known() && head.Chain == place.Chain:
		return nil
	}
	return position.Check(stat)
}
