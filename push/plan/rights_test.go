package plan

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

const site = "kubernetes://web"

// labelled returns a workload with one endpoint of a service account, with labels.
func labelled(t *testing.T, name, account, labels string) model.Record {
	t.Helper()
	return rec(t, model.KindEndpoints, name, fmt.Sprintf("hosts: [w.shop.svc.cluster.local]\nendpoints: [{address: 10.1.0.1, serviceAccount: %s, labels: {%s}}]", account, labels))
}

// selecting returns a Gateway that refers to the Secret web for proxies with labels.
func selecting(t *testing.T, labels string) model.Record {
	t.Helper()
	return rec(t, model.KindGateway, "apps/some", "{selector: {"+labels+"}, servers: [{tls: {mode: SIMPLE, credentialName: web}}]}")
}

// Selectors for private keys are compared with the recorded labels of the proxy's service account: the node's labels,
// metadata and id make no difference.
// Promise: security-workloads.md#identity-and-private-keys, security-workloads.md#what-it-says-of-itself
func TestForgedLabels(t *testing.T) {
	const none, others = "selects by labels, and the configuration knows no labels of service account shop/gw", "selects service account shop/gw, by the labels that the configuration has"
	for name, c := range map[string]struct {
		says     []string // the labels of the node
		has      []model.Record
		selector string
		want     string
	}{
		"the labels of the configuration": {nil, []model.Record{labelled(t, "shop/w", "gw", "app: gw, tier: x")}, "app: gw", ""},
		"one Pod of several":              {nil, []model.Record{labelled(t, "shop/w", "gw", "app: x"), labelled(t, "shop/v", "gw", "app: gw")}, "app: gw", ""},
		"forged labels":                   {[]string{"app=gw"}, []model.Record{labelled(t, "shop/w", "gw", "app: web")}, "app: gw", others},
		"no Pod that is known":            {[]string{"app=gw"}, nil, "app: gw", none},
		"a Pod without labels":            {[]string{"app=gw"}, []model.Record{labelled(t, "shop/w", "gw", "")}, "app: gw", others},
		"a Pod of another account":        {[]string{"app=gw"}, []model.Record{labelled(t, "shop/w", "web", "app: gw")}, "app: gw", none},
		"a Pod of another namespace":      {[]string{"app=gw"}, []model.Record{labelled(t, "bank/w", "gw", "app: gw")}, "app: gw", none},
		"labels of two Pods":              {nil, []model.Record{labelled(t, "shop/w", "gw", "app: gw"), labelled(t, "shop/v", "gw", "tier: x")}, "app: gw, tier: x", others},
		"no selector":                     {nil, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := gateway("shop", "shop")
			n.Labels = map[string]string{}
			for _, label := range c.says {
				key, value, _ := strings.Cut(label, "=")
				n.Labels[key] = value
				n.Metadata = map[string]string{key: value}
			}
			want := "chain, key of 1"
			if c.want != "" {
				want = ""
			}
			p := New(Settings{Snapshot: snapshot(append(c.has, selecting(t, c.selector), tlsSecret(t, "shop/web", "chain", "", "1"))...)})
			h := p.Join(n)
			p.SubscribeSecrets(h, []string{site}, nil)
			open(p, "key of 1")
			_, why := p.missing(h, site)
			if got := held(t, h.Set(), site); got != want || !strings.Contains(why, c.want) || (why == "") != (c.want == "") {
				t.Errorf("%q, because %q", got, why)
			}
		})
	}
}

// Changed labels add and remove the private key, also by the fast path alone; a key that no proxy receives is not kept
// in memory.
func TestLabelsThatChange(t *testing.T) {
	inBubble(t, Config{Opener: &opener{}, Authoriser: &judge{}}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(selecting(t, "app: gw"), tlsSecret(t, "shop/web", "chain", "", "1"))
		p, err := l.Join(t.Context(), gateway("shop", "shop"), func(Path) {})
		if err != nil {
			t.Fatal(err)
		}
		p.SubscribeSecrets(t.Context(), []string{site}, nil)
		for i, step := range []struct {
			put  model.Record
			want string
		}{
			{labelled(t, "shop/w", "gw", "app: web"), ""},
			{labelled(t, "shop/w", "gw", "app: gw"), "chain, key of 1"},
			{labelled(t, "shop/v", "web", "app: x"), "chain, key of 1"},
			{labelled(t, "shop/w", "web", "app: gw"), ""},
			{selecting(t, ""), "chain, key of 1"},
			{selecting(t, "app: other"), ""},
		} {
			src.put(step.put)
			pass(time.Second)
			if got := held(t, p.Set(), site); got != step.want || (l.planner.secrets.Keys() > 0) != (step.want != "") {
				t.Errorf("step %d: %q, %d private keys are held", i, got, l.planner.secrets.Keys())
			}
		}
	})
}

// Changed labels cost nothing if no subscribed Secret depends on them: a proxy may subscribe to thousands of names of
// missing Secrets.
// Promise: security-limits.md#plans-and-configuration
func TestLabelsBesideNamesOfNoSecret(t *testing.T) {
	pods := []model.Record{workloadOf(t, "shop/edge", "gw", "app: x"), workloadOf(t, "shop/edge", "gw", "app: gw")}
	p := New(Settings{Snapshot: snapshot(tlsSecret(t, "shop/web", "chain", "", "1"), selecting(t, "app: gw"), pods[0])})
	h := p.Join(gateway("shop", "shop"))
	names := []string{site}
	for i := range secret.MaxNames - 1 {
		names = append(names, fmt.Sprintf("kubernetes://none-%d", i))
	}
	p.SubscribeSecrets(h, names, nil)
	edits := 0
	edit := func() {
		edits++
		p.Apply(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{pods[edits%2]}, nil))
	}
	if n := testing.AllocsPerRun(10, edit); n > 1000 {
		t.Errorf("an edit of labels beside %d names of no Secret makes %.0f allocations", secret.MaxNames-1, n)
	}
	if edits%2 == 0 {
		edit()
	}
	open(p, "key of 1")
	if got := held(t, h.Set(), site); got != "chain, key of 1" {
		t.Errorf("the Secret that labels decide about: %q", got)
	}
	if cause, why := p.missing(h, names[1]); cause != "no such Secret" || why != "there is no Secret shop/none-0 with a valid certificate and private key (keys tls.crt and tls.key)" {
		t.Errorf("a name of no Secret: %s: %s", cause, why)
	}
	p.SubscribeSecrets(h, nil, []string{site})
	if edit(); len(p.Check(h)) > 0 {
		t.Error(p.Check(h))
	}
}

// The authoriser is queried once for all proxies of a service account, and again when the answer is too old; a denied
// answer removes the Secrets from the proxies. While the authoriser does not answer, the last allowed answer applies,
// and an identity without an answer receives nothing; both are reported.
func TestAuthoriserIsAsked(t *testing.T) {
	var log bytes.Buffer
	j := &judge{}
	who := gateway("shop", "shop").Verified
	inBubble(t, Config{Opener: &opener{}, Authoriser: j, Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(used(t, "web"), tlsSecret(t, "shop/web", "chain", "ca", "1"))
		join := func(n view.Node) *Proxy {
			t.Helper()
			p, err := l.Join(t.Context(), n, func(Path) {})
			if err != nil {
				t.Fatal(err)
			}
			p.SubscribeSecrets(t.Context(), []string{site, site + "-cacert"}, nil)
			return p
		}
		expect := func(what string, p *Proxy, want string, questions int) { // -1: at least one
			t.Helper()
			synctest.Wait()
			if got := held(t, p.Set(), site); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
			if got := held(t, p.Set(), site+"-cacert"); got != "trust ca" {
				t.Errorf("%s: the authorities are %q", what, got)
			}
			if got := j.questions(); got != questions && questions >= 0 {
				t.Errorf("%s: %d questions, want %d", what, got, questions)
			}
		}
		says := func(text string) {
			t.Helper()
			if !strings.Contains(log.String(), text) {
				t.Errorf("the log does not say %q: %s", text, log.String())
			}
		}
		const key = "chain, key of 1"
		first, second := join(gateway("shop", "shop")), join(gateway("shop", "shop"))
		expect("the first", first, key, 1)
		expect("the second", second, key, 0)
		pass(access.DefaultYes - time.Second)
		expect("a yes that is kept", first, key, 0)
		pass(time.Second)
		expect("a yes that is too old", first, key, 1)

		j.set(nil, who)
		pass(access.DefaultYes)
		expect("taken back", first, "", 1)
		says(`sent no private keys" identity="service account shop/gw" reason="it is told so"`)
		if l.planner.secrets.Keys() > 0 {
			t.Error("the private key is held")
		}
		pass(access.DefaultNo - time.Second)
		expect("a no that is kept", second, "", 0)
		j.set(nil)
		pass(time.Second)
		expect("given back", second, key, 1)

		j.set(errors.New("no route"))
		pass(access.DefaultAway - time.Second)
		expect("away", first, key, -1)
		stranger := gateway("shop", "shop")
		stranger.Verified.Account = "stranger"
		never := join(stranger)
		expect("never asked about", never, "", -1)
		says("service account shop/stranger may not list Secrets: the right is not known yet: no route")
		first.Leave()
		second.Leave()
		pass(20 * time.Second) // longer than unused views are kept
		again := join(gateway("shop", "shop"))
		expect("back, while it is away", again, "", -1) // after more than a day
		j.set(nil)
		pass(2 * time.Minute)
		expect("there again", again, key, -1)
		expect("never asked about before", never, key, 0)
	})
}

// A proxy that reconnects while the authoriser does not answer receives its previous Secrets.
func TestComesBackWhileAway(t *testing.T) {
	j := &judge{}
	inBubble(t, Config{Opener: &opener{}, Authoriser: j}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(used(t, "web"), tlsSecret(t, "shop/web", "chain", "", "1"))
		for i := range 3 {
			p, err := l.Join(t.Context(), gateway("shop", "shop"), func(Path) {})
			if err != nil {
				t.Fatal(err)
			}
			p.SubscribeSecrets(t.Context(), []string{site}, nil)
			if got := held(t, p.Set(), site); got != "chain, key of 1" {
				t.Errorf("join %d: %q", i, got)
			}
			j.set(errors.New("no route"))
			p.Leave()
			pass(time.Hour)
			if !l.planner.secrets.Empty() || len(l.planner.identities) > 0 {
				t.Errorf("%d identities, %d private keys are held", len(l.planner.identities), l.planner.secrets.Keys())
			}
		}
	})
}

// An answer for an identity that was unused for a while is queried again before a private key is sent.
func TestRightIsNotRemembered(t *testing.T) {
	j, o := &judge{}, &opener{}
	inBubble(t, Config{Opener: o, Authoriser: j}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(used(t, "web"), tlsSecret(t, "shop/web", "chain", "", "1"))
		p, err := l.Join(t.Context(), gateway("shop", "shop"), func(Path) {})
		if err != nil {
			t.Fatal(err)
		}
		p.SubscribeSecrets(t.Context(), []string{site}, nil)
		p.SubscribeSecrets(t.Context(), nil, []string{site})
		j.set(nil, p.Node.Verified)
		pass(access.DefaultYes)
		j.questions()
		p.SubscribeSecrets(t.Context(), []string{site}, nil)
		if got := held(t, p.Set(), site); got != "" || j.questions() != 1 || len(o.opened) != 1 {
			t.Errorf("sent %q, opened %q", got, o.opened)
		}
	})
}

// An edit of a binding causes a query at once; one of another namespace's binding does not. Without an authoriser no
// proxy receives keys.
func TestBindingsAreEdited(t *testing.T) {
	j := &judge{}
	binding := func(name, account string) model.Record {
		return rec(t, model.KindSecretReader, name, "accounts: ["+account+"]")
	}
	inBubble(t, Config{Opener: &opener{}, Authoriser: j}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(used(t, "web"), tlsSecret(t, "shop/web", "chain", "", "1"))
		p, err := l.Join(t.Context(), gateway("shop", "shop"), func(Path) {})
		if err != nil {
			t.Fatal(err)
		}
		p.SubscribeSecrets(t.Context(), []string{site}, nil)
		for i, c := range []struct {
			name      string
			questions int
		}{{"bank/b", 0}, {"shop/b", 1}, {"/b", 1}, {"", 0}} {
			j.questions()
			if c.name != "" {
				src.put(binding(c.name, fmt.Sprintf("a%d", i)))
			}
			pass(time.Second)
			if got := j.questions(); got != c.questions {
				t.Errorf("%q: %d questions, want %d", c.name, got, c.questions)
			}
		}
		j.set(nil, p.Node.Verified)
		src.put(binding("shop/b", "other"))
		pass(time.Second)
		if got := held(t, p.Set(), site); got != "" {
			t.Errorf("taken back: %q", got)
		}
	})
	inBubble(t, Config{Opener: &opener{}}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(used(t, "web"), tlsSecret(t, "shop/web", "chain", "", "1"))
		p, err := l.Join(t.Context(), gateway("shop", "shop"), func(Path) {})
		if err != nil {
			t.Fatal(err)
		}
		p.SubscribeSecrets(t.Context(), []string{site}, nil)
		if got, why := held(t, p.Set(), site), l.Standing(p, site).Why; got != "" || !strings.Contains(why, "no authoriser") {
			t.Errorf("without an authoriser: %q, %q", got, why)
		}
	})
}

// Private keys are planned once for all proxies of a service account, and their number of names has a common limit.
func TestRightsArePlannedByIdentity(t *testing.T) {
	p := New(Settings{Snapshot: snapshot(used(t, "web"), tlsSecret(t, "shop/web", "chain", "", "1"))})
	var handles []*Handle
	for i := range 20 {
		n := gateway("shop", "shop")
		n.Name, n.ID = fmt.Sprint(i), fmt.Sprint(i)
		h := p.Join(n)
		p.SubscribeSecrets(h, []string{site}, nil)
		handles = append(handles, h)
	}
	if rights := slices.Collect(p.secrets.Rights()); len(p.identities) != 1 || len(rights) != 1 {
		t.Errorf("%d identities, %d rights", len(p.identities), len(rights))
	}
	open(p, "key")
	res := handles[0].planned.Load().identity.Manifest()
	for _, h := range handles {
		if h.planned.Load().identity.Manifest() != res || held(t, h.Set(), site) != "chain, key" {
			t.Errorf("%s has another", h.Node.Name)
		}
	}
	var names []string
	for i, h := range handles[:6] {
		names = names[:0]
		for n := range secret.MaxNames - 1 {
			names = append(names, fmt.Sprintf("kubernetes://n%d-%d", i, n))
		}
		p.SubscribeSecrets(h, names, nil)
	}
	subs := p.identities[handles[0].Node.Verified]
	if subs.Len() != secret.MaxNamesOfIdentity {
		t.Errorf("%d names are kept for a service account, want %d", subs.Len(), secret.MaxNamesOfIdentity)
	}
	for _, h := range handles {
		p.Leave(h)
	}
	if !p.secrets.Empty() || len(p.identities) > 0 {
		t.Errorf("left: %v", maps.Keys(p.identities))
	}
}
