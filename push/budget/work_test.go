package budget

import (
	"strconv"
	"testing"
	"time"
)

// Frames count for the pace of the credential, with a reserve for the beginning. Further frames wait until that pace
// permits them, on however many connections. Other callers do not wait, and many credentials without a Pod share the
// identity's pace.
// Promise: security-limits.md#limits-of-one-identity, security-limits.md#streams-connections-and-messages
func TestWork(t *testing.T) {
	w := newBudgetTest(t, Limits{Work: 1000, WorkInAll: 5000, WorkPerKnown: 100})
	one, two := w.open(Holder{Credential: "bad", Pod: true}, ""), w.open(Holder{Credential: "bad", Pod: true}, "")
	good := w.open(Holder{Credential: "good", Pod: true}, "")
	if wait := one.Work(25_000); wait != 0 {
		t.Errorf("what was saved up: %v", wait)
	}
	for i, of := range []*stream{one, two, one} {
		if wait, want := of.Work(500), time.Duration(i+1)*500*time.Millisecond; wait != want {
			t.Errorf("500 more: %v, want %v", wait, want)
		}
	}
	if wait := good.Work(25_000); wait != 0 {
		t.Errorf("another credential: %v", wait)
	}
	w.now = w.now.Add(2 * time.Second)
	if wait := two.Work(500); wait != 0 {
		t.Errorf("after two seconds: %v", wait)
	}
	var wait time.Duration
	for i := range 50 { // credentials
		wait = w.open(Holder{Credential: strconv.Itoa(i)}, "").Work(5000)
	}
	if wait != 25*time.Second {
		t.Errorf("50 credentials of no Pod: %v", wait)
	}
	if wait := good.Work(0); wait != 0 {
		t.Errorf("of a Pod: %v", wait)
	}
	w.known[address(1)], w.known[address(2)] = struct{}{}, struct{}{}
	w.now = w.now.Add(time.Minute)
	for i := range 50 {
		wait = w.open(Holder{Credential: strconv.Itoa(i)}, "").Work(5000)
	}
	if wait.Round(time.Second) != 23*time.Second {
		t.Errorf("with two known workloads: %v", wait)
	}
	if wait := w.open(Holder{Credential: "known", From: address(1)}, "").Work(20_000); wait != 0 {
		t.Errorf("from the address of a known workload: %v", wait)
	}
}
