//go:build !race

package plan

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// Hosts that share thousands of addresses are planned in pieces. The first host by name has the addresses. Problems
// name a few of those that the other host lost, and count the rest.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestSharedAddressesArePlannedInPieces(t *testing.T) {
	p, _, _ := bigPlanner(t, 60, 1)
	const addresses = 12 * 340
	p.backgroundFrom = 0
	pieces := 0
	p.Begin(p.Snapshot().Apply(p.Snapshot().Revision()+1, attacks["hosts that share addresses"](t, addresses/12), nil))
	for p.Step(func() bool { pieces++; return true }) {
	}
	p.End()
	// Each of the two hosts marks its rivals, and decides its domains.
	if least := 2 * 2 * (addresses/200 - 1); pieces < least {
		t.Errorf("%d addresses are planned in %d pieces, want at least %d", addresses, pieces, least)
	}
	lost, counted := 0, 0
	for _, one := range p.Problems() {
		if one.Key.Kind == model.KindServiceEntry && strings.Contains(one.Message, "belong") {
			lost++
			if strings.HasPrefix(one.Message, "4070 more names at port 80 ") {
				counted++
			}
		}
	}
	if lost != 11 || counted != 1 {
		t.Errorf("%d problems of lost names, %d of them count the rest: %v", lost, counted, p.Problems())
	}
}
