package plan

import (
	"fmt"
	"testing"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// The test of the test: whichever cell of the table is struck, the oracle must find out.
func TestOracleFindsStruckCells(t *testing.T) {
	for _, kind := range model.Kinds() {
		for cell := range affects[kind] {
			t.Run(kind.String()+"/"+affects[kind][cell].name, func(t *testing.T) {
				t.Parallel()
				table := affects
				table[kind] = append([]effect{}, affects[kind]...)
				table[kind][cell].units = func(*change, types, mirror.Edit) {}
				mustFail(t, &table)
			})
		}
	}
}

// A row says for each type of resource that it is touched; without any one of them the oracle must fail, too. Where units
// are whole views the types say what may be in them, and cannot be struck one by one.
func TestOracleFindsStruckTypes(t *testing.T) {
	byType := map[string]bool{"hosts": true, "routes to it": true, "members": true}
	for _, kind := range model.Kinds() {
		for cell, e := range affects[kind] {
			for bit := types(1); bit <= rds; bit <<= 1 {
				if !byType[e.name] || !e.types.has(bit) {
					continue
				}
				t.Run(fmt.Sprintf("%v/%s/%d", kind, e.name, bit), func(t *testing.T) {
					t.Parallel()
					table := affects
					table[kind] = append([]effect{}, affects[kind]...)
					table[kind][cell].types &^= bit
					mustFail(t, &table)
				})
			}
		}
	}
}

func mustFail(t *testing.T, table *[model.NumKinds][]effect) {
	for seed := range uint64(600) {
		d := newDrill(t, 1000+seed, table)
		for i := range 50 {
			d.step(i)
			d.drain()
			if i > 5 && d.differs(1) != "" {
				return
			}
		}
	}
	t.Error("nothing was found")
}

// A kind without a row means everything: work, never a wrong plan.
func TestEmptyRowMeansEverything(t *testing.T) {
	table := affects
	for kind := range table {
		table[kind] = nil
	}
	for seed := range uint64(2) {
		d := newDrill(t, seed, &table)
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
		if len(affects[kind]) == 0 {
			t.Errorf("%v has no row in the table of effects", kind)
		}
		for _, e := range affects[kind] {
			if e.types == 0 || e.units == nil || e.name == "" {
				t.Errorf("%v: the row has an empty cell", kind)
			}
		}
	}
}
