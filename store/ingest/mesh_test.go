package ingest

import (
	"strings"
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/object"
)

// The last good mesh configuration stays in effect while its ConfigMap, or its key mesh, is missing, also under the
// next leader, which has read none; a problem reports it. A restored ConfigMap takes effect. Without any previous
// configuration the defaults apply, without a problem.
func TestMeshConfigurationStands(t *testing.T) {
	const closed, open = "outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "{}"
	unsaid := strings.Replace(gatewaysMap("", "{}"), "mesh: '', ", "", 1)
	d := newDesk(t)
	stands := func(what string, mode meshv1.MeshConfig_OutboundTrafficPolicy_Mode, missing string) {
		t.Helper()
		if got := d.s.inventory.objects.Mesh().GetOutboundTrafficPolicy().GetMode(); got != mode {
			t.Errorf("%s: mode %v", what, got)
		}
		found := ""
		for _, p := range d.s.Problems() {
			if strings.Contains(p.Message, "the last good mesh configuration stays in effect") {
				found += p.ID.Name + " " + p.Field
			}
		}
		if found != missing {
			t.Errorf("%s: problems with %q, want %q: %v", what, found, missing, d.s.Problems())
		}
	}
	const registryOnly, allowAny = meshv1.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY, meshv1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY
	d.want(Objects{put(t, svc), put(t, unsaid), synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Mesh mesh +Service web")
	stands("it never said anything", allowAny, "")
	d.want(Objects{put(t, gatewaysMap(closed, "{}"))}, "write +Mesh mesh")
	d.want(Objects{put(t, unsaid)})
	stands("its key is gone", registryOnly, "istio data.mesh")
	d.want(Objects{gone(put(t, unsaid))})
	stands("it is gone", registryOnly, "istio ")
	for what, events := range map[string]Objects{"another leader, without it": {put(t, svc), synced}, "another leader, without its key": {put(t, svc), put(t, unsaid), synced}} {
		d.s = NewState(Options{})
		d.lead()
		d.want(events, "load")
		stands(what, registryOnly, map[bool]string{true: "istio ", false: "istio data.mesh"}[len(events) == 2])
	}
	for what, bad := range map[string]object.Event{"an invalid one": put(t, gatewaysMap("outboundTrafficPolicy: {mode: UNHEARD_OF}", "{}")),
		"one that cannot be read": {Op: object.Broken, ID: put(t, unsaid).ID}} {
		d.s = NewState(Options{})
		d.lead()
		d.want(Objects{put(t, svc), bad, synced}, "load")
		stands("another leader, with "+what, registryOnly, "")
	}
	d.want(Objects{put(t, gatewaysMap(open, "{}"))}, "write +Mesh mesh")
	stands("it is back", allowAny, "")
	d.want(Objects{gone(put(t, gatewaysMap(open, "{}")))})
	stands("one with all defaults is gone", allowAny, "istio ")
}
