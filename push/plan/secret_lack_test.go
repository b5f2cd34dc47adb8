package plan

import (
	"slices"
	"testing"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// A credentialName that leads to no Secret is a problem of the Gateway or DestinationRule that names it and selects the
// gateway, until the Secret exists.
func TestMissingSecretIsAProblem(t *testing.T) {
	server := func(name, tls string) string {
		return "{port: {number: 443, name: " + name + ", protocol: HTTPS}, hosts: [" + name + ".test], tls: {" + tls + "}}"
	}
	router := routerOf("edge", "gw")
	router.Verified = view.Identity{Namespace: "edge", Account: "gw"}
	p := New(Settings{Snapshot: snapshot(
		labelled(t, "edge/gw-0", "gw", "app: gw"),
		rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: ["+server("a", "mode: SIMPLE, credentialName: none")+", "+
			server("b", "mode: MUTUAL, credentialName: good")+"]}"),
		rec(t, model.KindGateway, "shop/front", "{selector: {app: gw}, servers: ["+server("c", "mode: SIMPLE, credentialName: none")+"]}"),
		rec(t, model.KindGateway, "edge/others", "{selector: {app: other}, servers: ["+server("d", "mode: SIMPLE, credentialName: none")+"]}"),
		rec(t, model.KindDestinationRule, "edge/out", "{host: x.test, trafficPolicy: {tls: {mode: SIMPLE, caCertCredentialName: ca-cacert}}}"),
		tlsSecret(t, "edge/good", "chain", "", "1"), tlsSecret(t, "shop/none", "chain", "", "1"))})
	h := p.Join(router)
	ask := func(names ...string) {
		p.SubscribeSecrets(h, names, nil)
		for who := range p.identities {
			p.Authorised(who, access.Standing{Known: true, Allowed: true})
		}
	}
	ask("kubernetes://none", "kubernetes://good", "kubernetes://good-cacert", "kubernetes://ca-cacert", "kubernetes://unnamed")
	texts := func() (all []string) {
		for _, one := range p.Problems() {
			all = append(all, one.Error())
		}
		return all
	}
	const fail = "; new gateway Pods of namespace edge cannot complete TLS handshakes for this server; Pods that have an earlier version still use it"
	want := []string{
		"DestinationRule edge/out: spec.trafficPolicy.tls.caCertCredentialName: there is neither a Secret edge/ca-cacert nor a Secret edge/ca with certificates of authorities" +
			"; new Pods of namespace edge cannot connect by this rule; Pods that have an earlier version still use it",
		"Gateway edge/front: spec.servers[0].tls.credentialName: there is no Secret edge/none with a valid certificate and private key (keys tls.crt and tls.key)" + fail,
		"Gateway edge/front: spec.servers[1].tls.credentialName: there is neither a Secret edge/good-cacert nor a Secret edge/good " +
			"with certificates of authorities" + fail,
		"Gateway shop/front: spec.servers[0].tls.credentialName: there is no Secret edge/none with a valid certificate and private key (keys tls.crt and tls.key)" + fail +
			"; Secret shop/none is not used, because the Pods are in namespace edge",
	}
	if got := texts(); !slices.Equal(got, want) {
		t.Errorf("problems\n%q\nwant\n%q", got, want)
	}
	if got := p.Lacking(h); len(got) != 5 || got["kubernetes://none"] != "there is no Secret edge/none with a valid certificate and private key (keys tls.crt and tls.key)" ||
		got["kubernetes://good"] != "the private key of kubernetes://good is not decrypted yet" {
		t.Errorf("lacking %q", got)
	}
	for _, s := range p.Sealed() {
		p.Opened(s, model.PrivateKey("key"))
	}
	if got := p.Lacking(h); len(got) != 4 || got["kubernetes://good"] != "" {
		t.Errorf("lacking, once the key is decrypted: %q", got)
	}
	for _, now := range []model.Record{tlsSecret(t, "edge/none", "chain", "", "1"), tlsSecret(t, "edge/good-cacert", "", "ca", ""), tlsSecret(t, "edge/ca", "", "ca", "")} {
		edited(p, now)
	}
	if got := texts(); len(got) > 0 {
		t.Errorf("once the Secrets exist: %q", got)
	}
}

func TestSecretOfAnotherNamespaceIsAProblem(t *testing.T) {
	router := routerOf("edge", "gw")
	router.Verified = view.Identity{Namespace: "edge", Account: "gw"}
	p := New(Settings{Snapshot: snapshot(
		labelled(t, "edge/gw-0", "gw", "app: gw"),
		rec(t, model.KindGateway, "edge/front", `selector: {app: gw}
servers:
- {port: {number: 443, name: a, protocol: HTTPS}, hosts: [a.test], tls: {mode: SIMPLE, credentialName: other/cred}}
- {port: {number: 443, name: b, protocol: HTTPS}, hosts: [b.test], tls: {mode: MUTUAL, credentialNames: [good, 'kubernetes-gateway://other/x'],
    caCertCredentialName: 'kubernetes://other/ca'}}
- {port: {number: 443, name: c, protocol: HTTPS}, hosts: [c.test], tls: {mode: SIMPLE, credentialName: edge/good}}`),
		tlsSecret(t, "edge/good", "chain", "", "1"), tlsSecret(t, "other/cred", "chain", "", "1"))})
	p.SubscribeSecrets(p.Join(router), []string{"kubernetes://good"}, nil)
	for who := range p.identities {
		p.Authorised(who, access.Standing{Known: true, Allowed: true})
	}
	const why = " belongs to namespace other, and gateways of namespace edge get only Secrets of their own namespace; TLS handshakes with it fail"
	want := []string{
		"Gateway edge/front: spec.servers[0].tls.credentialName: other/cred" + why,
		"Gateway edge/front: spec.servers[1].tls.caCertCredentialName: kubernetes://other/ca" + why,
		"Gateway edge/front: spec.servers[1].tls.credentialNames[1]: kubernetes-gateway://other/x" + why,
	}
	var got []string
	for _, one := range p.Problems() {
		got = append(got, one.Error())
	}
	if !slices.Equal(got, want) {
		t.Errorf("problems\n%q\nwant\n%q", got, want)
	}
}
