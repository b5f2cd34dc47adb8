package plan

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/access"
	buildsecret "navarch.io/navarch/push/build/secret"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// tlsSecret returns the record of a Secret; the opener returns "key of KEY" for it.
func tlsSecret(t testing.TB, name, chain, trust, key string) model.Record {
	t.Helper()
	namespace, short, _ := strings.Cut(name, "/")
	spec := &model.SecretSpec{Chain: []byte(chain), Trust: []byte(trust)}
	if key != "" {
		spec.Key, spec.Mac = []byte("sealed "+key), []byte("mac of "+key)
	}
	r, err := model.New(model.Key{Kind: model.KindSecret, Namespace: namespace, Name: short}, 0, spec)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// opener opens the Secrets of tlsSecret, unless it is blocked.
type opener struct {
	mu     sync.Mutex
	err    error
	text   string // the returned text; empty: that of tlsSecret
	opened []string
}

func (o *opener) Open(_ context.Context, key model.Key, spec *model.SecretSpec) (model.PrivateKey, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return nil, o.err
	}
	o.opened = append(o.opened, key.Namespace+"/"+key.Name)
	if o.text != "" {
		return model.PrivateKey(o.text), nil
	}
	return model.PrivateKey("key of " + strings.TrimPrefix(string(spec.GetKey()), "sealed ")), nil
}

// give sets the text that is returned from now on.
func (o *opener) give(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err, o.text = nil, text
}

func (o *opener) set(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

// gateway returns a proxy of type router that is authenticated as the service account gw of the namespace verified, or
// not at all if this is empty.
func gateway(namespace, verified string) view.Node {
	n := node(namespace, "gw")
	n.Kind = view.Router
	if verified != "" {
		n.Verified = view.Identity{Namespace: verified, Account: "gw"}
	}
	return n
}

// judge is an authoriser that allows all by default.
type judge struct {
	mu    sync.Mutex
	no    map[view.Identity]bool
	err   error
	asked []view.Identity
}

func (j *judge) MayListSecrets(_ context.Context, who view.Identity) (access.Answer, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked = append(j.asked, who)
	if j.no[who] {
		return access.Answer{Why: "it is told so"}, j.err
	}
	return access.Answer{Allowed: true}, j.err
}

// questions returns the number of queries since the last call.
func (j *judge) questions() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := len(j.asked)
	j.asked = nil
	return n
}

func (j *judge) set(err error, no ...view.Identity) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.err, j.no = err, map[view.Identity]bool{}
	for _, who := range no {
		j.no[who] = true
	}
}

// used returns a Gateway of another namespace that selects all proxies and refers to Secrets by name.
func used(t testing.TB, names ...string) model.Record {
	t.Helper()
	return rec(t, model.KindGateway, "apps/all", "servers: [{tls: {mode: SIMPLE, credentialNames: ["+strings.Join(names, ", ")+"]}}]")
}

// open allows all identities to list Secrets, and opens the requested ones with the key.
func open(p *Planner, key string) {
	for who := range p.identities {
		p.Authorised(who, access.Standing{Known: true, Allowed: true})
	}
	for _, r := range p.secrets.Sealed() {
		p.Opened(r, model.PrivateKey(key))
	}
}

// held describes a set's Secret: chain and key, trust, "pending", or empty.
func held(t testing.TB, set *manifest.Set, name string) string {
	t.Helper()
	if set.Types[xds.Secret].Pending(name) {
		return "pending"
	}
	r := set.Types[xds.Secret].Get(name)
	if r == nil {
		return ""
	}
	m := &tlsv3.Secret{}
	if err := proto.Unmarshal(r.Body(), m); err != nil || m.Name != name || m.ValidateAll() != nil {
		t.Fatalf("%s: %v %v", name, m, err)
	}
	if v := m.GetValidationContext(); v != nil {
		return "trust " + string(v.TrustedCa.GetInlineBytes())
	}
	return string(m.GetTlsCertificate().CertificateChain.GetInlineBytes()) + ", " + string(m.GetTlsCertificate().PrivateKey.GetInlineBytes())
}

// other is a service account without the right to list Secrets.
var other = view.Identity{Namespace: "shop", Account: "other"}

// wantSent lets a proxy join and subscribe to the Secret ask: it must receive want, with a private key that was opened
// for it. If want is empty, the log must contain why.
func wantSent(t *testing.T, records []model.Record, n view.Node, ask, want, why string) {
	t.Helper()
	var log bytes.Buffer
	o := &opener{}
	n.ID, n.Peer = "router~10.1.1.1~site-1.shop~shop.svc", "10.9.9.9:1"
	inBubble(t, Config{Opener: o, Authoriser: &judge{no: map[view.Identity]bool{other: true}}, Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(records...)
		p, err := l.Join(t.Context(), n, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := p.Set().Types[xds.Secret].Len(); n != 0 {
			t.Errorf("%d Secrets that nobody has asked for", n)
		}
		p.SubscribeSecrets(t.Context(), []string{ask}, nil)
		if got := held(t, p.Set(), ask); got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
		if pair := strings.Contains(want, "key of"); len(o.opened) > 1 || pair != (len(o.opened) == 1) {
			t.Errorf("opened %q", o.opened)
		}
		if (want == "") != strings.Contains(log.String(), "a proxy is not sent a Secret that it subscribes to") || strings.Contains(log.String(), "key of") {
			t.Errorf("log: %s", log.String())
		}
		if want == "" && !strings.Contains(log.String(), "node="+n.ID+" peer=10.9.9.9:1") {
			t.Errorf("log without node and peer: %s", log.String())
		}
		if got := l.Standing(p, ask).Why; got != why || !strings.Contains(log.String(), why) {
			t.Errorf("withheld because %q, want %q; log: %s", got, why, log.String())
		}
		p.Leave()
	})
}

// A proxy that is authenticated in a namespace receives CA certificates of this namespace, and private keys if its
// service account may list Secrets, whatever its node states. The reason for a refused Secret is logged.
// Promise: security-gateways.md#keys-secrets-and-configmaps, security-workloads.md#identity-and-private-keys
func TestWhoMayHaveSecrets(t *testing.T) {
	records := []model.Record{tlsSecret(t, "shop/web", "chain", "ca", "1"), tlsSecret(t, "shop/trust", "", "only", ""),
		tlsSecret(t, "shop/mutual", "m", "beside", "2"), tlsSecret(t, "shop/mutual-cacert", "", "own", ""), tlsSecret(t, "bank/web", "bank", "", "3"),
		used(t, "web", "trust", "mutual", "none"), tlsSecret(t, "shop/unused", "u", "", "4"), tlsSecret(t, "trust/configmap:ca", "", "map", "")}
	sidecar, liar, account := node("shop", "app"), gateway("shop", "shop"), node("shop", "app")
	sidecar.Verified, liar.Verified, account.Verified = other, other, gateway("shop", "shop").Verified
	spoof := gateway("bank", "shop")
	const (
		forbidden  = "service account shop/other may not list Secrets: it is told so"
		anonymous  = "the proxy is not authenticated as a workload of a namespace"
		ofShop     = "its identity belongs to namespace shop, the proxy to namespace bank"
		ofBank     = "its identity belongs to namespace bank, the proxy to namespace shop"
		notOfShop  = "the name does not lead to a Secret of its namespace shop"
		notOfBank  = "the name does not lead to a Secret of its namespace bank"
		incomplete = " with a valid certificate and private key (keys tls.crt and tls.key)"
	)
	for _, c := range []struct {
		node           view.Node
		ask, want, why string
	}{
		{gateway("shop", "shop"), "kubernetes://web", "chain, key of 1", ""},
		{gateway("shop", "shop"), "kubernetes://shop/web", "chain, key of 1", ""},
		{gateway("shop", "shop"), "kubernetes-gateway://shop/web", "chain, key of 1", ""},
		{gateway("shop", "shop"), "kubernetes://web-cacert", "trust ca", ""},
		{gateway("shop", "shop"), "kubernetes-gateway://shop/web-cacert", "trust ca", ""},
		{gateway("shop", "shop"), "kubernetes://trust-cacert", "trust only", ""},
		{gateway("shop", "shop"), "kubernetes://mutual-cacert", "trust own", ""},
		{gateway("shop", "shop"), "kubernetes://trust", "", "there is no Secret shop/trust" + incomplete},
		{gateway("shop", "shop"), "kubernetes://none", "", "there is no Secret shop/none" + incomplete},
		{gateway("shop", "shop"), "kubernetes://none-cacert", "", "there is neither a Secret shop/none-cacert nor a Secret shop/none with certificates of authorities"},
		{gateway("shop", "shop"), "kubernetes://bank/web", "", notOfShop},
		{gateway("shop", "shop"), "kubernetes-gateway://bank/web", "", notOfShop},
		{gateway("shop", "shop"), "kubernetes-gateway://web", "", notOfShop},
		{gateway("shop", "shop"), "kubernetes-gateway://shop/web/x", "", notOfShop},
		{gateway("shop", "shop"), "kubernetes://", "", notOfShop},
		{gateway("shop", "shop"), "web", "", notOfShop},
		{gateway("shop", "shop"), "default", "", notOfShop},
		{gateway("shop", "shop"), "configmap://trust/ca", "trust map", ""},
		{gateway("shop", "shop"), "configmap://trust/ca-cacert", "trust map", ""},
		{gateway("shop", "shop"), "configmap://trust/none", "", "there is no ConfigMap trust/none with certificates of authorities (key ca.crt or cacert)"},
		{gateway("shop", "shop"), "configmap://shop/web", "", "there is no ConfigMap shop/web with certificates of authorities (key ca.crt or cacert)"},
		{gateway("shop", "shop"), "configmap://ca", "", notOfShop},
		{gateway("shop", ""), "configmap://trust/ca", "", anonymous},
		{gateway("bank", "bank"), "kubernetes://web", "bank, key of 3", ""},
		{gateway("bank", "bank"), "kubernetes://shop/web", "", notOfBank},

		{gateway("shop", ""), "kubernetes://web", "", anonymous}, // plain text, or without an identity
		{gateway("shop", "bank"), "kubernetes://web", "", ofBank},
		{spoof, "kubernetes://web", "", ofShop},
		{spoof, "kubernetes://shop/web", "", ofShop},
		{spoof, "kubernetes-gateway://shop/web", "", ofShop},
		{gateway("", ""), "kubernetes://shop/web", "", anonymous},
		{gateway("shop", "shop"), "kubernetes://unused", "", "no Gateway, DestinationRule of its namespace or EnvoyFilter refers to Secret shop/unused"},
		{gateway("shop", "shop"), "kubernetes-gateway://shop/unused", "", "no Gateway, DestinationRule of its namespace or EnvoyFilter refers to Secret shop/unused"},
		{sidecar, "kubernetes://web", "", forbidden},
		{sidecar, "kubernetes-gateway://shop/web", "", forbidden},
		{sidecar, "kubernetes://web-cacert", "trust ca", ""},
		{sidecar, "kubernetes://bank/web-cacert", "", notOfShop},
		{liar, "kubernetes://web", "", forbidden},
		{liar, "kubernetes-gateway://shop/web", "", forbidden},
		{liar, "kubernetes://web-cacert", "trust ca", ""},
		{account, "kubernetes://web", "chain, key of 1", ""},
	} {
		t.Run(fmt.Sprintf("%v %s as %v asks %s", c.node.Kind, c.node.Namespace, c.node.Verified, c.ask), func(t *testing.T) {
			wantSent(t, records, c.node, c.ask, c.want, c.why)
		})
	}
}

// A Secret that no proxy subscribes to any more is removed, with its private key.
func TestSecretsAreForgotten(t *testing.T) {
	p := New(Settings{Snapshot: snapshot(tlsSecret(t, "shop/web", "chain", "ca", "1"), tlsSecret(t, "shop/other", "chain", "", "2"), used(t, "web", "other"))})
	shop := gateway("shop", "shop").Verified
	a, b := p.Join(gateway("shop", "shop")), p.Join(gateway("shop", "shop"))
	p.SubscribeSecrets(a, []string{"kubernetes://web", "kubernetes://web", "kubernetes://other", "kubernetes://web-cacert"}, nil)
	p.SubscribeSecrets(b, []string{"kubernetes://web"}, nil)
	open(p, "key")
	p.SubscribeSecrets(a, nil, []string{"kubernetes://web", "kubernetes://other", "kubernetes://never"})
	if p.secrets.Keys() != 1 || held(t, b.Set(), "kubernetes://web") != "chain, key" || held(t, b.Set(), "kubernetes://other") != "" {
		t.Errorf("%d private keys are held", p.secrets.Keys())
	}
	p.Leave(b)
	if p.secrets.Keys() != 0 || p.identities[shop].Len() != 1 {
		t.Errorf("%d private keys, %d names are held", p.secrets.Keys(), p.identities[shop].Len())
	}
	p.Leave(a)
	if len(p.identities) != 0 {
		t.Error("the subscriptions are held")
	}
	p.SubscribeSecrets(a, []string{"kubernetes://web"}, nil) // as at the end of its stream
	if len(p.identities) != 0 || len(p.secrets.Sealed()) != 0 {
		t.Error("who has left asks")
	}
	var many []string
	for i := range secret.MaxNames + 9 {
		many = append(many, fmt.Sprintf("kubernetes://%d", i))
	}
	c := p.Join(gateway("shop", "shop"))
	if p.SubscribeSecrets(c, many, nil); p.identities[shop].Len() != secret.MaxNames {
		t.Errorf("%d names are kept", p.identities[shop].Len())
	}
	if _, why := p.missing(c, many[secret.MaxNames]); why != fmt.Sprintf("it asks for more than %d, or all of its service account for more than %d", secret.MaxNames, secret.MaxNamesOfIdentity) {
		t.Errorf("what is not kept is withheld because %q", why)
	}
}

// The Spec that Explain returns does not contain the private key, and the version does not depend on how the key was
// sealed.
func TestSecretsAreNotExplained(t *testing.T) {
	record := tlsSecret(t, "shop/web", "one", "", "1").(*model.Secret)
	p := New(Settings{Snapshot: snapshot(record, used(t, "web"))})
	h := p.Join(gateway("shop", "shop"))
	p.SubscribeSecrets(h, []string{"kubernetes://web"}, nil)
	open(p, "the private key")
	specs := p.Explain(h, xds.Secret, "kubernetes://web")
	if len(specs) != 1 || specs[0].(buildsecret.Pair).Secret != record {
		t.Fatalf("%v", specs)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		if text := fmt.Sprintf(format, specs[0]) + fmt.Sprintf(format, *specs[0].(buildsecret.Pair).Key); strings.Contains(text, "the private key") || strings.Contains(text, "7468652070") {
			t.Errorf("%s shows it: %s", format, text)
		}
	}
	version := h.Set().Types[xds.Secret].Get("kubernetes://web").Version
	again := record.Spec
	resealed, err := model.New(record.Key, 0, &model.SecretSpec{Chain: again.Chain, Key: []byte("sealed otherwise"), Mac: again.Mac})
	if err != nil {
		t.Fatal(err)
	}
	p.Apply(p.input.Snapshot.Apply(2, []model.Record{resealed}, nil))
	for _, r := range p.secrets.Sealed() {
		p.Opened(r, model.PrivateKey("the private key"))
	}
	if now := h.Set().Types[xds.Secret].Get("kubernetes://web").Version; now != version {
		t.Errorf("version %s, was %s: the same key encrypted again would be sent again", now, version)
	}
}

// An edit of a ConfigMap reaches the proxies that ask for it, of whatever namespace.
func TestEditedConfigMap(t *testing.T) {
	p := New(Settings{Snapshot: snapshot(tlsSecret(t, "trust/configmap:ca", "", "one", ""))})
	h, other := p.Join(gateway("shop", "shop")), p.Join(gateway("bank", "bank"))
	p.SubscribeSecrets(h, []string{"configmap://trust/ca"}, nil)
	p.SubscribeSecrets(other, []string{"configmap://trust/none"}, nil)
	for _, c := range []struct{ text, want string }{{"two", "trust two"}, {"three", "trust three"}} {
		p.Apply(p.input.Snapshot.Apply(2, []model.Record{tlsSecret(t, "trust/configmap:ca", "", c.text, "")}, nil))
		if got := held(t, h.Set(), "configmap://trust/ca"); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	p.Apply(p.input.Snapshot.Apply(3, nil, []model.Key{{Kind: model.KindSecret, Namespace: "trust", Name: "configmap:ca"}}))
	if got := held(t, h.Set(), "configmap://trust/ca"); got != "" {
		t.Errorf("after its removal: %q", got)
	}
}
