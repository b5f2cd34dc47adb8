//go:build !race

package plan

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// strikes names the file with one line `cell seed step` for each struck cell: in this random history and at this step
// the oracle first finds the wrong plan. Without the file each run would search hundreds of histories. When a cell or
// the random editor has changed, `go test ./push/plan -run TestOracleFinds -update` searches again for the cells whose
// history no longer finds them, and writes the file.
const strikes = "testdata/strikes.txt"

var update = flag.Bool("update", false, "search for the histories that find struck cells, and write "+strikes)

// history is a seed of the random editor, and the number of a step.
type history struct {
	seed uint64
	step int
}

// TestOracleFindsStruckCells tests the oracle: if any cell of the table of effects is struck, it must find a wrong
// plan. A row lists the affected units, with the types of resources; each type must be necessary, too. If the units are
// whole views, their types only limit the resources and cannot be struck one by one.
func TestOracleFindsStruckCells(t *testing.T) {
	recorded := readStrikes(t)
	found := map[string]history{}
	var mu sync.Mutex
	t.Run("strike", func(t *testing.T) {
		for cell, table := range struckTables() {
			t.Run(cell, func(t *testing.T) {
				t.Parallel()
				if !*update {
					if at, ok := recorded[cell]; !ok || !findsAt(t, at, &table) {
						t.Errorf("the oracle does not find this strike in the recorded history (%v; recorded: %v). Where the random editor changed, run with -update", at, ok)
					}
					return
				}
				at, ok := recorded[cell]
				if !ok || !findsAgain(t, at, &table) {
					first := uint64(firstStrike)
					switch kind, _, _ := strings.Cut(cell, "/"); kind {
					case model.KindNetworkGateways.String():
						first = firstNetworks
					case model.KindTelemetry.String():
						first = firstTelemetry
					}
					if cell == "Gateway/routers" || cell == "Gateway/readers" {
						first = firstEntrances
					}
					if strings.HasPrefix(cell, model.KindRequestAuthentication.String()) || strings.HasSuffix(cell, "/asked") {
						first = firstTokens
					}
					if strings.Contains(cell, "/served") {
						first = firstJoined
					}
					if strings.HasPrefix(cell, model.KindWasmPlugin.String()) || strings.HasPrefix(cell, model.KindTrafficExtension.String()) {
						first = firstExtensions
						if strings.HasSuffix(cell, "/Secrets") || strings.HasSuffix(cell, "/Pods") {
							first = firstPulls
						}
					}
					at = search(t, first, &table)
				}
				mu.Lock()
				defer mu.Unlock()
				found[cell] = at
			})
		}
	})
	if *update && !t.Failed() {
		writeStrikes(t, found)
	}
	for cell := range recorded {
		if _, there := struckTables()[cell]; !there && !*update {
			t.Errorf("%s names %q, which is no cell: run with -update", strikes, cell)
		}
	}
}

// unitTested names, for reasons of the fast path, the unit test that strikes them: in random histories they seldom
// apply alone, or the next plan of configuration corrects the result.
var unitTested = map[string]string{
	"gateways' own addresses": "TestPodsOfGatewaysThatMove",
	"ports of the service":    "TestEndpointsWaitForTheirService",
	"endpoints without mTLS":  "TestOutOfSelectorEndpointsBringTheirPolicies",
	"mTLS of whole clusters":  "TestProxylessClusterTakesMTLSAsAWhole",
	"labels":                  "TestLabelsThatChange",
	"its proxy":               "TestBoundPodThatChangesBeforeItSubscribes",
}

// unitTestedCells names, for cells that random histories seldom need, the unit test that strikes them.
var unitTestedCells = map[string]string{"ServiceEntry/places": "TestPlacesOfServiceEntries", "TrafficExtension/Pods": "TestPodsOfTrafficExtensions",
	"Endpoints/gateways' own": "TestPodsOfGatewaysThatMove"}

// struckTables returns, for each cell, the table of effects without it, by the name of the cell.
func struckTables() map[string][model.NumKinds][]effect {
	all := map[string][model.NumKinds][]effect{}
	byType := map[string]bool{"hosts": true, "routes to it": true, "members": true}
	strike := func(name string, kind model.Kind, cell int, change func(*effect)) {
		table := affects
		table[kind] = slices.Clone(affects[kind])
		change(&table[kind][cell])
		all[strings.ReplaceAll(name, " ", "_")] = table
	}
	for _, kind := range model.Kinds() {
		for cell, e := range affects[kind] {
			name := kind.String() + "/" + e.name
			if unitTestedCells[name] == "" {
				strike(name, kind, cell, func(e *effect) { e.units = func(*change, input.Types, mirror.Edit) {} })
			}
			for i, reason := range e.slow {
				if unitTested[reason.name] != "" {
					continue
				}
				strike(name+"/slow "+reason.name, kind, cell, func(e *effect) { e.slow = slices.Delete(slices.Clone(e.slow), i, i+1) })
			}
			for bit := input.Types(1); bit <= input.RDS; bit <<= 1 {
				if byType[e.name] && e.types.Has(bit) {
					strike(fmt.Sprintf("%s/type-%d", name, bit), kind, cell, func(e *effect) { e.types &^= bit })
				}
			}
		}
	}
	return all
}

// findsAt runs a history up to one step, compares there, and reports whether it finds a difference.
func findsAt(t *testing.T, at history, table *[model.NumKinds][]effect) bool {
	d := newRandomRun(t, at.seed, table)
	for i := range at.step + 1 {
		d.step(i)
		d.drain()
	}
	return d.differs(1) != ""
}

// further is the number of additional histories that are searched for an earlier step, since each run of the test
// repeats the steps before it.
const further = 12

// search returns the first step of the first history from a seed at which the oracle finds the struck cell, or an
// earlier step of one of the further histories.
func search(t *testing.T, first uint64, table *[model.NumKinds][]effect) history {
	best, last := history{step: 50}, first+600
	for seed := first; seed < last; seed++ {
		d := newRandomRun(t, seed, table)
		for i := range best.step {
			d.step(i)
			d.drain()
			if at := (history{seed, i}); i > 5 && d.differs(1) != "" && findsAgain(t, at, table) {
				best, last = at, min(last, seed+further)
				break
			}
		}
	}
	if best.seed == 0 {
		t.Error("nothing was found")
	}
	t.Logf("found by history %d at step %d", best.seed, best.step)
	return best
}

// findsAgain reports whether a history finds the struck cell each time, in any order of iterating over maps.
func findsAgain(t *testing.T, at history, table *[model.NumKinds][]effect) bool {
	for range 8 {
		if !findsAt(t, at, table) {
			return false
		}
	}
	return true
}

func readStrikes(t *testing.T) map[string]history {
	raw, err := os.ReadFile(strikes)
	if err != nil && !(*update && errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	all := map[string]history{}
	for line := range strings.Lines(string(raw)) {
		var cell string
		var at history
		if _, err := fmt.Sscanf(line, "%s %d %d", &cell, &at.seed, &at.step); err != nil {
			t.Fatalf("%s: %q: %v", strikes, line, err)
		}
		all[cell] = at
	}
	return all
}

func writeStrikes(t *testing.T, found map[string]history) {
	var out strings.Builder
	for _, cell := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&out, "%s %d %d\n", cell, found[cell].seed, found[cell].step)
	}
	if err := os.WriteFile(strikes, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A kind without a row affects everything: this costs work, but no plan is wrong.
func TestEmptyRowMeansEverything(t *testing.T) {
	table := affects
	for kind := range table {
		table[kind] = nil
	}
	for seed := range uint64(2) {
		d := newRandomRun(t, seed, &table)
		for i := range 40 {
			d.step(i)
			d.drain()
			if diff := d.differs(i); diff != "" {
				t.Fatalf("seed %d step %d: %s\nafter\n%s", seed, i, diff, d.last)
			}
		}
	}
}

func TestEveryKindHasARow(t *testing.T) {
	for _, kind := range model.Kinds() {
		if affects[kind] == nil {
			t.Errorf("%v has no row in the table of effects", kind)
		}
		for _, e := range affects[kind] {
			if e.types == 0 || e.units == nil || e.name == "" {
				t.Errorf("%v: the row has an empty cell", kind)
			}
		}
	}
}
