//go:build !race

package gateways

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// Merge does twice the work if a server states twice as many hosts and loses them to twice as many servers. The loser
// also states one host repeatedly.
func TestLostHostsAreLinear(t *testing.T) {
	allocations := func(winners int) float64 {
		var all []*model.Gateway
		loser := "HTTPS+SIMPLE 443" + strings.Repeat(" d.com", 5*winners)
		for i := range winners {
			all = append(all, gateway(fmt.Sprintf("a/g%d@1", i), fmt.Sprintf("HTTPS+SIMPLE 443 h%d.com", i)))
			loser += fmt.Sprintf(" x/h%d.com", i)
		}
		r := Router{Gateways: append(all, gateway("a/z@2", loser))}
		if _, conflicts := Merge(r); len(conflicts) == 0 || conflicts[0].Field != fmt.Sprintf("spec.servers[0].hosts[%d]", 5*winners) {
			t.Fatalf("%d winners: the conflicts begin with %v", winners, conflicts[:min(1, len(conflicts))])
		}
		return testing.AllocsPerRun(1, func() { Merge(r) })
	}
	if few, many := allocations(400), allocations(800); many > 2.3*few {
		t.Errorf("%.0f allocations for 400 winners, %.0f for 800", few, many)
	}
}
