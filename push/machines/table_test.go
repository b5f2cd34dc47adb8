package machines

import (
	"fmt"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/obs"
)

// A registration visits no other machine, however many there are, and does not search the same snapshot again; its
// result is counted.
func TestRegistrationsCost(t *testing.T) {
	r := registry(mesh(t))
	counted := func(result string) float64 {
		var m dto.Metric
		if err := obs.Registrations.WithLabelValues(result).Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	before := map[string]float64{}
	for _, result := range []string{registered, ofIdentity, ofAddress, ofGroup, ofTheNumber} {
		before[result] = counted(result)
	}
	_, taken := r.Register(node("10.0.0.100"), "", nil)
	const many = machines.MostOfAccount
	var first *Connection
	for i := range many {
		c, err := r.Register(node(fmt.Sprintf("10.7.%d.%d", i/200, i%200)), fmt.Sprint(i%8), nil)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = c
		}
	}
	if again, err := r.Register(node("10.7.0.0"), "0", nil); err != nil {
		t.Errorf("one that is known: %v", err)
	} else {
		again.Leave()
	}
	_, tooMany := r.Register(node("10.8.0.1"), "", nil)
	stranger, nowhere := node("10.8.0.2"), node("10.8.0.3")
	stranger.Verified.Account, nowhere.Metadata[groupKey] = "web", "none"
	_, denied := r.Register(stranger, "", nil)
	_, missing := r.Register(nowhere, "", nil)
	if status.Code(tooMany) != codes.ResourceExhausted || taken == nil || denied == nil || missing == nil {
		t.Errorf("%v, %v, %v, %v", tooMany, taken, denied, missing)
	}
	if r.known.visited != 0 || r.addresses.searched > 2 { // a clock that passes a second while this runs has it look again
		t.Errorf("%d machines were searched at for %d registrations, and the configuration %d times", r.known.visited, many, r.addresses.searched)
	}
	for result, want := range map[string]float64{registered: many + 1, ofTheNumber: 1, ofAddress: 1, ofIdentity: 1, ofGroup: 1} {
		if got := counted(result) - before[result]; got != want {
			t.Errorf("%s: %v, want %v", result, got, want)
		}
	}
	first.Leave()
	if n := r.Connected(); n != many-1 {
		t.Errorf("%d are connected", n)
	}
}
