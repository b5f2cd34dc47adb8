package gateway

import (
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/model"
)

// exportedTo returns a VirtualService "v" of a namespace.
func exportedTo(namespace string, created int64, exportTo ...string) *model.VirtualService {
	key := model.Key{Kind: model.KindVirtualService, Namespace: namespace, Name: "v"}
	return &model.VirtualService{Head: model.Head{Key: key, Created: created}, Spec: &networkingv1.VirtualService{ExportTo: exportTo}}
}

// The problems of a takeover, of a lost match and of lost connections name the other VirtualService only if it is
// exported to the namespace of the problem. Operators read all names.
func TestProblemsNameNoPrivateWinners(t *testing.T) {
	open, private := exportedTo("shop", 1, "*"), exportedTo("victim", 2, "edge")
	over := &takeovers{host: "x.example", named: map[[2]*model.VirtualService]bool{}, taken: map[*model.VirtualService]bool{},
		lost: map[*model.VirtualService]bool{}}
	over.takes(private, open, "/a")
	lost := &takeovers{host: "x.example", taken: map[*model.VirtualService]bool{}, lost: map[*model.VirtualService]bool{}}
	lost.loses(private, open, "/a")
	var chains []input.Problem
	c := &chaining{Front: &Front{}, socket: &socket{}, found: &chains}
	c.report(open.Key, "spec.tls", "connections with SNI x", model.OtherOf(private))
	for _, p := range append(append(over.found, lost.found...), chains...) {
		switch names := strings.Contains(p.Message, "victim/v") || strings.Contains(p.Message, "shop/v"); {
		case p.Key.Namespace == "shop" && (names || !strings.Contains(p.Whole, "VirtualService victim/v")):
			t.Errorf("of the private winner: %q, whole %q", p.Message, p.Whole)
		case p.Key.Namespace == "victim" && (!names || p.Whole != ""):
			t.Errorf("of the exported loser: %q, whole %q", p.Message, p.Whole)
		}
	}
	if n := len(over.found) + len(lost.found) + len(chains); n != 4 {
		t.Errorf("%d problems, want 4", n)
	}
}
