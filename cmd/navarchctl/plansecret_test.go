package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/preview"
)

// secretObject returns a Secret of namespace edge with a certificate, as YAML.
func secretObject(t *testing.T, name string) string {
	t.Helper()
	cert, key := keyPair(t, time.Now().Add(time.Hour))
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {name: %s, namespace: edge}\ndata: {tls.crt: %s, tls.key: %s}\n---\n",
		name, base64.StdEncoding.EncodeToString([]byte(cert)), base64.StdEncoding.EncodeToString([]byte(key)))
}

// mayList has the router's Pod, and gives its service account the right to list Secrets.
const mayList = `{apiVersion: v1, kind: Pod, metadata: {name: gw, namespace: edge, labels: {istio: ingressgateway}},
spec: {serviceAccountName: gw, containers: [{name: istio-proxy}]},
status: {phase: Running, podIP: 10.1.0.10, conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: edge}, rules: [{apiGroups: [""],
resources: [secrets], verbs: [get, watch, list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r, namespace: edge}, roleRef: {
apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, subjects: [{kind: ServiceAccount, name: gw, namespace: edge}]}
---
`

// tlsServer returns a Gateway of namespace edge that selects the router and names a Secret, as YAML.
func tlsServer(name, port, secret string) string {
	return "{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: " + name + ", namespace: edge}, spec: {" +
		"selector: {istio: ingressgateway}, servers: [{port: {number: " + port + ", name: https, protocol: HTTPS}, " +
		"tls: {mode: SIMPLE, credentialName: " + secret + "}, hosts: [" + name + ".com]}]}}\n---\n"
}

// A plan has the Secrets that a change makes a gateway subscribe to, or not have any more, and no other ones.
// Promise: plan.md#edge-cases
func TestPlanOfSecrets(t *testing.T) {
	before := secretObject(t, "shop-cert") + secretObject(t, "other") + mayList + tlsServer("shop", "8443", "shop-cert")
	const policy = `{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: p, namespace: edge},
spec: {selector: {matchLabels: {istio: ingressgateway}}, action: ACTION, rules: [{to: [{operation: {paths: [/a]}}]}]}}`
	for _, c := range []struct{ name, change, want string }{
		{"a Gateway at another port", strings.Replace(tlsServer("b", "8444", "shop-cert"), "HTTPS}, tls: {mode: SIMPLE, credentialName: shop-cert}", "HTTP}", 1), ""},
		{"a Gateway at another port with the same Secret", tlsServer("b", "8444", "shop-cert"), ""},
		{"a DENY policy", strings.Replace(policy, "ACTION", "DENY", 1), ""},
		{"an ALLOW policy", strings.Replace(policy, "ACTION", "ALLOW", 1), ""},
	} {
		r := planOf(t, before, c.change)
		var got []string
		for _, g := range r.Affected {
			for _, a := range g.Resources {
				if a.Type == "secret" {
					got = append(got, a.Change+" "+a.Name)
				}
			}
		}
		if len(r.Affected) == 0 || strings.Join(got, ", ") != c.want {
			t.Errorf("%s: Secrets %v, want %q", c.name, got, c.want)
		}
	}
}

// A name of a Secret that does not exist is a new problem of the object that names it, and one that is mended is gone.
// Promise: plan.md#edge-cases
func TestPlanOfMissingSecrets(t *testing.T) {
	rule := func(secret string) string {
		return "{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: d, namespace: edge}, spec: {host: a.com, " +
			"trafficPolicy: {tls: {mode: SIMPLE, credentialName: " + secret + "}}}}\n---\n"
	}
	before := secretObject(t, "shop-cert") + mayList + tlsServer("shop", "8443", "shop-cert") + tlsServer("bad", "8445", "none") +
		"{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: a, namespace: edge}, spec: {hosts: [a.com], " +
		"location: MESH_EXTERNAL, resolution: DNS, ports: [{number: 443, name: http, protocol: HTTP}]}}\n---\n"
	const absent = "there is no Secret edge/shop-certt"
	for _, c := range []struct{ name, change, object, new, gone string }{
		{"a changed name", tlsServer("shop", "8443", "shop-certt"), "Gateway edge/shop", absent, ""},
		{"a new Gateway", tlsServer("b", "8444", "shop-certt"), "Gateway edge/b", absent, ""},
		{"a rule", rule("shop-certt"), "DestinationRule edge/d", "there is neither a Secret edge/shop-certt-cacert nor a Secret edge/shop-certt", ""},
		{"a Secret that exists", tlsServer("b", "8444", "shop-cert"), "", "", ""},
		{"a mended name", tlsServer("bad", "8445", "shop-cert"), "Gateway edge/bad", "", "there is no Secret edge/none"},
		{"another port with the same absence", tlsServer("bad", "8446", "none"), "", "", ""},
	} {
		r := planOf(t, before, c.change)
		for _, of := range []struct {
			list string
			got  []preview.Found
			want string
		}{{"new", r.Problems.New, c.new}, {"gone", r.Problems.Gone, c.gone}} {
			if n := len(of.got); (n == 1) != (of.want != "") || n > 1 ||
				n == 1 && (of.got[0].Object != c.object || !strings.Contains(of.got[0].Message, of.want) || of.got[0].Code == "") {
				t.Errorf("%s: %s problems %+v, want one of %s: %q", c.name, of.list, of.got, c.object, of.want)
			}
		}
	}
}
