package budget

import (
	"errors"
	"strconv"
	"testing"
)

// A caller with incomplete messages loses the connection with the most of them, and no other caller loses one: a
// credential has a part of its identity's bytes, and an identity a part of all.
// Promise: security-limits.md#limits-of-one-identity, security-limits.md#streams-connections-and-messages
func TestMessagesThatDoNotEnd(t *testing.T) {
	w := newBudgetTest(t, Limits{Workload: 16, Messages: 1000, MessagesPerKnown: 100, MessagesPerCredential: 300, MessagesInAll: 5000})
	good, other := w.open(Holder{Credential: "good"}, "good"), w.open(Holder{Identity: "other", Credential: "other"}, "other")
	good.Hold(90)
	other.Hold(90)
	one, two := w.open(Holder{Credential: "bad"}, "a"), w.open(Holder{Credential: "bad"}, "b")
	one.Hold(160)
	if two.Hold(140); one.ended != nil || two.ended != nil {
		t.Fatal("they end before they have too much")
	}
	if two.Hold(1); !errors.Is(one.ended, ErrMessages) || two.ended != nil {
		t.Fatalf("more than a credential may have: %v, %v", one.ended, two.ended)
	}
	one.Hold(1000) // it is about to be closed
	one.Hold(-500)
	one.Leave()
	two.Hold(-141)
	// Many credentials of one identity.
	var many []*stream
	for i := range 20 {
		s := w.open(Holder{Credential: strconv.Itoa(i)}, "")
		s.Hold(100 + i)
		many = append(many, s)
	}
	ended, kept := 0, 90
	for i, s := range many {
		if s.ended != nil {
			ended++
			s.Leave()
		} else {
			kept += 100 + i
		}
	}
	if kept > 1000 || ended == 0 || kept < 800 {
		t.Errorf("%d end, %d bytes are kept", ended, kept)
	}
	// Known workloads have more.
	w.known[address(1)] = struct{}{}
	w.now = w.now.Add(knownFor)
	if s := w.open(Holder{Credential: "more"}, ""); true {
		s.Hold(1000 - kept)
		if s.Hold(100); s.ended != nil {
			t.Errorf("a known workload gives nothing: %v", s.ended)
		}
	}
	// Many identities.
	worst := w.open(Holder{Identity: "worst", Credential: "worst"}, "")
	worst.Hold(299)
	for i := range 20 {
		s := w.open(Holder{Identity: strconv.Itoa(i)}, "")
		if s.Hold(298); s.ended != nil {
			t.Fatalf("identity %d ends, and another one has more", i)
		}
		if worst.ended != nil {
			break
		}
	}
	if worst.ended == nil || good.ended != nil || other.ended != nil {
		t.Errorf("all together have too much: %v, %v, %v", worst.ended, good.ended, other.ended)
	}
	good.Hold(-90)
	good.Leave()
	if good.Entry.credential.held != 0 || w.held < 0 {
		t.Errorf("%d, %d bytes are left", good.Entry.credential.held, w.held)
	}
}
