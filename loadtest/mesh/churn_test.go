package mesh

import "testing"

// An edit of an endpoint reaches all clients of its service. This is also checked for services with distribution by
// zones, some of which have no endpoints in the third zone.
func TestToggledPodsAreSeenByAll(t *testing.T) {
	settings, err := preset("world-b")
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(settings)
	if err != nil {
		t.Fatal(err)
	}
	c, checked := NewChurn(w, t.TempDir()), 0
	for k, s := range w.services {
		if s.rule != distribute {
			continue
		}
		checked++
		c.ToggleReadiness(k)
		for i := range c.states[s].unready {
			if zone := c.states[s].pods[i].zone; zone == zoneName(2) {
				t.Errorf("%s: a pod in %s", s.host(), zone)
			}
		}
	}
	if checked == 0 {
		t.Error("no service distributes requests by zones")
	}
}
