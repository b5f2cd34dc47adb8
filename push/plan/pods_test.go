package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// workloadOf returns the record of a Pod with a service account and labels.
func workloadOf(t *testing.T, name, account, labels string) model.Record {
	t.Helper()
	return rec(t, model.KindWorkload, name, fmt.Sprintf("endpoint: {address: 10.1.0.1, serviceAccount: %s, labels: {%s}}", account, labels))
}

func boundTo(pod string) view.Node {
	n := gateway("shop", "shop")
	n.Pod = pod
	return n
}

// If a credential proves a proxy's Pod, selectors for private keys are compared with the labels of the Pod's record;
// otherwise with those of all Pods of the service account.
// Promise: security-workloads.md#identity-and-private-keys
func TestPodOfTheToken(t *testing.T) {
	const others = "selects service account shop/gw, by the labels that the configuration has"
	base := []model.Record{tlsSecret(t, "shop/web", "chain", "", "1"), selecting(t, "app: edge"),
		workloadOf(t, "shop/edge", "gw", "app: edge, unread: x"), workloadOf(t, "shop/web", "gw", "app: web"), workloadOf(t, "shop/of-another", "web", "app: web")}
	for name, c := range map[string]struct {
		node view.Node
		want string
	}{
		"the Pod that is selected":               {boundTo("edge"), ""},
		"another Pod of the service account":     {boundTo("web"), others},
		"no Pod is proved":                       {boundTo(""), ""},
		"a Pod that is not known":                {boundTo("gone"), ""},
		"a Pod that is of another account now":   {boundTo("of-another"), ""},
		"a machine whose entry is named like it": {boundTo("workloadentry:web"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Settings{Snapshot: snapshot(base...)})
			h := p.Join(c.node)
			p.SubscribeSecrets(h, []string{site}, nil)
			open(p, "key of 1")
			_, why := p.missing(h, site)
			if got := held(t, h.Set(), site); (got == "chain, key of 1") != (c.want == "") || !strings.Contains(why, c.want) {
				t.Errorf("%q, because %q", got, why)
			}
			if bad := p.Check(h); len(bad) > 0 {
				t.Error(bad)
			}
		})
	}
}

// A proxy whose credential proves no cluster receives no Secrets, not even CA certificates, and is told the reason; the
// authoriser is not queried for it.
// Promise: security-workloads.md#what-it-says-of-itself
func TestClusterThatIsNotProved(t *testing.T) {
	n := boundTo("edge")
	n.ClusterUnproved = true
	p := New(Settings{Snapshot: snapshot(tlsSecret(t, "shop/web", "chain", "", "1"), selecting(t, "app: edge"), workloadOf(t, "shop/edge", "gw", "app: edge"))})
	h := p.Join(n)
	p.SubscribeSecrets(h, []string{site}, nil)
	open(p, "key of 1")
	if cause, why := p.missing(h, site); cause != "cluster not proved" || !strings.Contains(why, "use a token of the proxy's cluster") || h.View().Secrets != (view.Identity{}) || held(t, h.Set(), site) != "" {
		t.Errorf("%q, because %s: %s", held(t, h.Set(), site), cause, why)
	}
	for who := range p.secrets.Rights() {
		t.Errorf("the authoriser is asked about %v", who)
	}
}

// Pods that no selector distinguishes share their subscriptions, and the authoriser is queried for their service
// account.
func TestBoundPodsShare(t *testing.T) {
	records := []model.Record{tlsSecret(t, "shop/web", "chain", "", "1"), selecting(t, "app: edge")}
	for i := range 20 {
		records = append(records, workloadOf(t, fmt.Sprintf("shop/p%d", i), "gw", fmt.Sprintf("app: edge, pod: p%d", i)))
	}
	p := New(Settings{Snapshot: snapshot(records...)})
	for i := range 20 {
		p.SubscribeSecrets(p.Join(boundTo(fmt.Sprintf("p%d", i))), []string{site}, nil)
	}
	if st := p.Stats(); st.Views != 1 || len(p.identities) != 1 {
		t.Errorf("%d views, %d identities of twenty Pods with equal labels", st.Views, len(p.identities))
	}
	for who := range p.secrets.Rights() {
		if who != boundTo("").Verified {
			t.Errorf("the authoriser is asked about %+v", who)
		}
	}
	for h := range p.handles {
		p.Leave(h)
	}
	if len(p.identities)+len(p.pods) != 0 || !p.secrets.Empty() {
		t.Errorf("%d identities, %d Pods are kept for nobody", len(p.identities), len(p.pods))
	}
}

// Each change of a Pod's labels, of whether the Pod is known, and of the labels that selectors read changes its
// Secrets.
// Promise: security-workloads.md#identity-and-private-keys
func TestBoundPodThatChanges(t *testing.T) {
	inBubble(t, Config{Opener: &opener{}, Authoriser: &judge{}}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(selecting(t, "app: edge"), tlsSecret(t, "shop/web", "chain", "", "1"), workloadOf(t, "shop/other", "gw", "app: edge"))
		p, err := l.Join(t.Context(), boundTo("mine"), func(Path) {})
		if err != nil {
			t.Fatal(err)
		}
		p.SubscribeSecrets(t.Context(), []string{site}, nil)
		synced := func() string {
			pass(time.Second)
			return held(t, p.Set(), site)
		}
		if got := synced(); got != "chain, key of 1" {
			t.Errorf("while its Pod is not known: %q", got)
		}
		for i, step := range []struct {
			put  model.Record
			want string
		}{
			{workloadOf(t, "shop/mine", "gw", "app: web"), ""},
			{workloadOf(t, "shop/mine", "gw", "app: edge"), "chain, key of 1"},
			{workloadOf(t, "shop/mine", "gw", "app: edge, tier: x"), "chain, key of 1"},
			{selecting(t, "tier: x"), "chain, key of 1"},
			{selecting(t, "tier: z"), ""},
			{workloadOf(t, "shop/mine", "gw", "tier: z"), "chain, key of 1"},
			{workloadOf(t, "shop/other", "gw", "tier: z"), "chain, key of 1"},
			{workloadOf(t, "shop/mine", "gw", "tier: x"), ""},
		} {
			src.put(step.put)
			if got := synced(); got != step.want || (l.planner.secrets.Keys() > 0) != (step.want != "") {
				t.Errorf("step %d: %q, want %q; %d private keys are held", i, got, step.want, l.planner.secrets.Keys())
			}
		}
	})
}

// A proxy that subscribes to Secrets after the labels of its Pod changed receives those for the new labels.
func TestBoundPodThatChangesBeforeItSubscribes(t *testing.T) {
	p := New(Settings{Snapshot: snapshot(tlsSecret(t, "shop/web", "chain", "", "1"), selecting(t, "app: edge"), workloadOf(t, "shop/mine", "gw", "app: edge"))})
	h := p.Join(boundTo("mine"))
	c := p.Snapshot().Apply(2, []model.Record{workloadOf(t, "shop/mine", "gw", "app: web")}, nil)
	if _, rest := p.PlanEndpoints(c, false); len(rest) > 0 {
		p.Apply(mirror.Change{New: c.New, Edits: rest})
	}
	p.SubscribeSecrets(h, []string{site}, nil)
	open(p, "key of 1")
	if got := held(t, h.Set(), site); got != "" {
		t.Errorf("a Pod that is not selected any more has %q", got)
	}
}

// A proxy that moves to another view keeps its Secrets: the right and the opened key go with it, so nothing is opened
// again, and no proxy has to wait.
func TestSecretsOfAProxyThatMoves(t *testing.T) {
	gatewayAt := func(name, selector string) model.Record {
		return rec(t, model.KindGateway, "shop/"+name, "{selector: {"+selector+"}, servers: [{port: {number: 81, name: http, protocol: HTTP}, hosts: ['*']}]}")
	}
	also := func(selector string) model.Record {
		return rec(t, model.KindGateway, "apps/also", "{selector: {"+selector+"}, servers: [{tls: {mode: SIMPLE, credentialName: web}}]}")
	}
	for name, c := range map[string]struct {
		node     view.Node
		change   model.Record
		identity bool // the identity changes too
	}{
		"a Gateway":                               {boundTo("mine"), gatewayAt("g", "app: edge"), false},
		"a Gateway, and no Pod":                   {boundTo(""), gatewayAt("g", "app: edge"), false},
		"a policy":                                {boundTo("mine"), rec(t, model.KindAuthorizationPolicy, "shop/p", "{closed: true, selector: {app: edge}}"), false},
		"a Gateway that reads another label":      {boundTo("mine"), also("tier: x"), true},
		"a Pod that gets a label that is read":    {boundTo("mine"), workloadOf(t, "shop/mine", "gw", "app: edge, tier: x, zone: z"), true},
		"a Pod that the token proves appears now": {boundTo("later"), workloadOf(t, "shop/later", "gw", "app: edge"), true},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Settings{Snapshot: snapshot(tlsSecret(t, "shop/web", "chain", "", "1"), selecting(t, "app: edge"),
				rec(t, model.KindGateway, "apps/zone", "{selector: {app: edge, zone: z}, servers: [{tls: {mode: SIMPLE, credentialName: web}}]}"),
				workloadOf(t, "shop/mine", "gw", "app: edge, tier: x"))})
			n := c.node
			n.Labels = map[string]string{"app": "edge", "tier": "x"}
			h := p.Join(n)
			p.SubscribeSecrets(h, []string{site}, nil)
			open(p, "key of 1")
			was := h.View()
			moved := p.Apply(p.Snapshot().Apply(2, []model.Record{c.change}, nil))
			if is := h.View(); len(moved) == 0 || is == was || (is.Secrets != was.Secrets) != c.identity {
				t.Fatalf("the view %+v, before %+v", is, was)
			}
			if got := held(t, h.Set(), site); got != "chain, key of 1" {
				t.Errorf("has %q", got)
			}
			if sealed := p.Sealed(); len(sealed) > 0 || len(p.secrets.Unknown()) > 0 || p.secrets.Keys() != 1 {
				t.Errorf("%d keys are opened again, %v are asked again", len(sealed), p.secrets.Unknown())
			}
			if bad := p.Check(h); len(bad) > 0 {
				t.Error(bad)
			}
			if p.Leave(h); !p.secrets.Empty() {
				t.Error("after the last proxy something is left")
			}
		})
	}
}
