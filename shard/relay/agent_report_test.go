package relay

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// The agent's report is sent after Envoy's first request and after each change, the newest one also on the upstream
// that a stream moves to. Without a report nothing is sent.
func TestSay(t *testing.T) {
	const typeHealth = "type.googleapis.com/istio.v1.HealthInformation"
	m := newMesh()
	m.set(t, typeCDS, "c", "c1", text("cluster"))
	a, b := m.replica(t), m.replica(t)
	r := runRelay(t, Config{Target: a.addr, Follow: true}, quick)
	said := func(of *replica, n int) []*discoveryv3.DeltaDiscoveryRequest {
		return of.seen(0, typeHealth, func(of []*discoveryv3.DeltaDiscoveryRequest) bool { return len(of) == n })
	}
	c := newDeltaClient(t, r)
	c.accept()
	if got := said(a, 0); len(got) > 0 {
		t.Errorf("said %v", got)
	}
	r.Report(typeHealth, "")
	if got := said(a, 1); got[0].ErrorDetail != nil || got[0].Node != nil || got[0].ResponseNonce != "" || len(got[0].ResourceNamesSubscribe) > 0 {
		t.Errorf("said %v", got)
	}
	r.Report(typeHealth, "it does not answer")
	if got := said(a, 2)[1].ErrorDetail; got.GetMessage() != "it does not answer" || got.GetCode() != internal {
		t.Errorf("said %v", got)
	}
	m.setOwner(b.addr)
	if got := said(b, 1)[0]; got.ErrorDetail.GetMessage() != "it does not answer" {
		t.Errorf("said to the next upstream: %v", got)
	}
	if _, all := b.stream(0); all[len(all)-1].TypeUrl != typeHealth && all[0].TypeUrl == typeHealth {
		t.Errorf("said before Envoy's first words: %v", all)
	}
	r.Report(typeHealth, "")
	if got := said(b, 2)[1]; got.ErrorDetail != nil {
		t.Errorf("said %v", got)
	}
}
