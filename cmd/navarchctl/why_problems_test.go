package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
)

// keyPair returns a certificate that ends at a time, and its private key.
func keyPair(t *testing.T, ends time.Time) (cert, key string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"x.test"}, NotBefore: ends.Add(-2 * time.Hour), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, own.Public(), own)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return encode("CERTIFICATE", der), encode("EC PRIVATE KEY", private)
}

// edge is a folder with a gateway Pod at 10.1.0.10 in namespace edge, and its Service at 10.96.15.1, which has port 443
// for port 8443 of the Pod. The service account gw may list Secrets.
const edge = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: gw, namespace: edge}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get, watch, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: gw, namespace: edge}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: gw}
subjects: [{kind: ServiceAccount, name: gw, namespace: edge}]
---
apiVersion: v1
kind: Service
metadata: {name: gw, namespace: edge}
spec: {clusterIP: 10.96.15.1, selector: {app: gw}, ports: [{name: http, port: 80, targetPort: 8080}, {name: https, port: 443, targetPort: 8443}]}
---
apiVersion: v1
kind: Pod
metadata: {name: gw-0, namespace: edge, labels: {app: gw}}
spec: {serviceAccountName: gw, containers: [{name: istio-proxy, image: x}]}
status: {phase: Running, podIP: 10.1.0.10, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: gw-1, namespace: edge, labels: {kubernetes.io/service-name: gw}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}, {name: https, port: 8443, protocol: TCP}]
endpoints: [{addresses: [10.1.0.10], conditions: {ready: true}, targetRef: {kind: Pod, namespace: edge, name: gw-0}}]
---
`

// edgeNode writes the objects of edge and others into a folder, and returns the folder and the file of the node.
func edgeNode(t *testing.T, objects string) (folder, node string) {
	t.Helper()
	folder, node = t.TempDir(), filepath.Join(t.TempDir(), "gw.json")
	for name, content := range map[string]string{filepath.Join(folder, "all.yaml"): objects,
		node: `{"id": "router~10.1.0.10~gw-0.edge~edge.svc.cluster.local", "metadata": {"NAMESPACE": "edge", "SERVICE_ACCOUNT": "gw",
			"INSTANCE_IPS": "10.1.0.10", "LABELS": {"app": "gw"}, "CLUSTER_ID": "Kubernetes", "NAVARCH_IDENTITY": "sds"}}`} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder, node
}

// A handshake for which the folder has no usable certificate fails, with the reason and the problem of the Secret.
// Promise: why.md#certificates
func TestWhyHandshakesFail(t *testing.T) {
	good, key := keyPair(t, time.Now().Add(time.Hour))
	ended, endedKey := keyPair(t, time.Now().Add(-time.Hour))
	objects := edge
	for name, of := range map[string][2]string{"good": {good, key}, "mixed": {good, endedKey}, "ended": {ended, endedKey}} {
		objects += fmt.Sprintf("apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {name: %s, namespace: edge}\ndata: {tls.crt: %s, tls.key: %s}\n---\n",
			name, base64.StdEncoding.EncodeToString([]byte(of[0])), base64.StdEncoding.EncodeToString([]byte(of[1])))
	}
	objects += "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g, namespace: edge}\nspec:\n  selector: {app: gw}\n  servers:\n"
	for host, tls := range map[string]string{"good": "mode: SIMPLE, credentialName: good", "mixed": "mode: SIMPLE, credentialName: mixed",
		"ended": "mode: SIMPLE, credentialName: ended", "gone": "mode: SIMPLE, credentialName: gone",
		"noca": "mode: OPTIONAL_MUTUAL, credentialName: good", "sds": `mode: SIMPLE, credentialName: "sds://x"`} {
		objects += fmt.Sprintf("  - {port: {number: 443, name: %s, protocol: HTTPS}, hosts: [%s.test], tls: {%s}}\n", host, host, tls)
	}
	folder, node := edgeNode(t, objects)
	noRight, _ := edgeNode(t, strings.Replace(objects, "verbs: [get, watch, list]", "verbs: [get]", 1))
	for _, c := range []struct {
		folder, host string
		want         []string
		absent       string
	}{
		{folder, "good", []string{"ends TLS with kubernetes://good", "answers 404", "confidence: certain\n"}, "problem:"},
		{folder, "gone", []string{"the handshake fails: there is no Secret edge/gone with a valid certificate", "confidence: certain\n"}, "answers"},
		{folder, "mixed", []string{"the handshake fails", "confidence: certain\n",
			"problem: Secret edge/mixed data.tls.key: the private key does not belong to the certificate in data.tls.crt"}, "answers"},
		{folder, "ended", []string{"answers 404", "confidence: likely (certificate kubernetes://ended ended", "clients that verify it refuse it"}, "handshake"},
		{folder, "noca", []string{"the handshake fails: there is neither a Secret edge/good-cacert", "confidence: certain\n"}, "answers"},
		{folder, "sds", []string{"the handshake fails: sds://x is for an SDS server", "confidence: certain\n"}, "answers"},
		{noRight, "good", []string{"the handshake fails: service account edge/gw may not list Secrets", "verb list on secrets", "confidence: certain\n"}, "answers"},
	} {
		out, _, err := ran("why", "--config-dir", c.folder, "--to", node, "--address", ":8443", "https://"+c.host+".test/")
		for _, want := range c.want {
			if err != nil || !strings.Contains(out, want) || strings.Contains(out, c.absent) {
				t.Errorf("%s: %v, want %q\n%s", c.host, err, want, out)
			}
		}
	}
	out, _, err := ran("why", "--config-dir", folder, "--to", node, "--address", ":8443", "https://mixed.test/", "-o", "json")
	if err != nil || !strings.Contains(out, `"problems": [`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// A host of a server that lost to another one, and a destination without a cluster, come with the problem that explains
// them. Problems of other hosts are not listed.
func TestWhyExplainsLostHostsAndClusters(t *testing.T) {
	server := func(name, host string) string {
		return fmt.Sprintf("{port: {number: 443, name: %s, protocol: HTTPS}, hosts: [%s], tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}}", name, host)
	}
	gateway := func(name, more string) string {
		return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: edge}\n"+
			"spec: {selector: {app: gw}, servers: [%s]}\n---\n", name, more)
	}
	routes := func(name, destination string) string {
		return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %s, namespace: edge}\n"+
			"spec: {hosts: [%s.test], gateways: [a], http: [{route: [{destination: {%s}}]}]}\n---\n", name, name, destination)
	}
	folder, node := edgeNode(t, edge+gateway("a", server("x", "x.test")+", {port: {number: 80, name: h, protocol: HTTP}, hosts: ['*']}")+
		gateway("b", server("late", "y.test, x.test")+", "+server("w", "w.test"))+
		routes("subset", "host: gw, subset: v9, port: {number: 80}")+routes("port", "host: gw, port: {number: 81}")+routes("host", "host: none.test"))
	for url, want := range map[string]string{
		"https://y.test/":     "problem: Gateway edge/b spec.servers[0].hosts",
		"http://subset.test/": "problem: VirtualService edge/subset spec.http: destination gw.edge.svc.cluster.local subset v9 is not there",
		"http://port.test/":   "problem: VirtualService edge/port spec.http: destination gw.edge.svc.cluster.local has no port 81",
		"http://host.test/":   "problem: VirtualService edge/host spec.http: destination none.test is not there",
	} {
		out, _, err := ran("why", "--config-dir", folder, "--to", node, url)
		if err != nil || !strings.Contains(out, want) || strings.Count(out, "problem:") != strings.Count(out, strings.Join(strings.Fields(want)[:3], " ")) {
			t.Errorf("%s: %v, want %q\n%s", url, err, want, out)
		}
	}
	of := suspects{host: "x.test", port: 8443}
	for message, want := range map[string]bool{
		"host */x.test on port 443 (8443 of the Pod) belongs to Gateway edge/a (spec.servers[0]), which takes precedence": true,
		"host shop/*.test on port 443 belongs to Gateway edge/a (spec.servers[0])":                                        true,
		"host */xx.test on port 443 (8443 of the Pod) belongs to Gateway edge/a (spec.servers[0])":                        false,
	} {
		if of.blame("Gateway edge/b", message) != want {
			t.Errorf("%s: want %v", message, want)
		}
	}
	for message, want := range map[string]bool{
		"port 443 (8443 of the Pod): Gateway edge/a takes precedence; this server is not served":  true,
		"port 8443: Gateway edge/a takes precedence; this server is not served":                   true,
		"port 8443 (9443 of the Pod): Gateway edge/a takes precedence; this server is not served": false,
		"port 84431: Gateway edge/a takes precedence; this server is not served":                  false,
	} {
		if of.blamePort()("Gateway edge/b", message) != want {
			t.Errorf("%s: want %v", message, want)
		}
	}
}

// The dump of a control plane says why a gateway lacks a Secret. The problems of exactly this Secret are asked for.
// Promise: why.md#certificates
func TestWhyHandshakesFailLive(t *testing.T) {
	const dump = `{"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"node": {"id": "router~10.1.0.10~gw-0.edge~edge.svc.cluster.local",
 "metadata": {"NAVARCH_CLOSED_BY": ["AuthorizationPolicy edge/x"], "NAVARCH_SERVICE_PORTS": [{"service": "Service edge/gw", "addresses": ["10.96.15.1"], "port": 443, "pod": 8443}]}}}},
{"@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump", "dynamic_listeners": [{"name": "0.0.0.0_8443", "active_state": {"listener": {
 "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "0.0.0.0_8443", "address": {"socket_address": {"address": "0.0.0.0", "port_value": 8443}},
 "filter_chains": [{"transport_socket": {"name": "tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
  "common_tls_context": {"tls_certificate_sds_secret_configs": [{"name": "kubernetes://mixed", "sds_config": {"ads": {}}}]}}}}]}}}]},
{"@type": "type.googleapis.com/envoy.admin.v3.SecretsConfigDump", "dynamic_warming_secrets": [{"name": "kubernetes://mixed", "error_state": {"details": "withheld: no Secret edge/mixed"}}]}]}`
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := strings.TrimPrefix(r.URL.Path, fleetapi.Root); {
		case path == "problems":
			asked = append(asked, r.URL.Query().Get("object"))
			fmt.Fprintf(w, `{"schema": %q, "items": [{"object": "Secret edge/mixed", "field": "data.tls.key", "code": "invalid", "severity": "error",
				"message": "not of it"}]}`, fleetapi.Schema)
		case strings.HasPrefix(path, "config/"):
			fmt.Fprintf(w, `{"schema": %q, "items": [%s]}`, fleetapi.Schema, dump)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	out, _, err := ran("why", "--server", strings.TrimPrefix(server.URL, "http://"), "--to", "gw-0.edge", "https://x.test/")
	for _, want := range []string{"port 443 of Service edge/gw is 8443 of the Pod\n", "the handshake fails: no Secret edge/mixed", "problem: Secret edge/mixed data.tls.key: not of it",
		"confidence: likely (it is not known whether the proxy has an earlier version of kubernetes://mixed, which it would still use)\n"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v, want %q\n%s", err, want, out)
		}
	}
	if strings.Join(asked, ";") != "Secret edge/mixed" {
		t.Errorf("asked for the problems of %q", asked)
	}
}

// Refusals name the AuthorizationPolicy and the rule. A policy that cannot be enforced is named with the field, offline
// and by the dump of a control plane, also by authz check.
// Promise: why.md#who-may-call-a-workload
func TestWhyNamesPolicies(t *testing.T) {
	const policy = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: %s, namespace: edge}\nspec: {selector: {matchLabels: {app: gw}}, %s}\n---\n"
	gateway := edge + "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g, namespace: edge}\n" +
		"spec: {selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}\n---\n"
	for _, c := range []struct {
		name, spec       string
		why, check, json []string
	}{
		{"ext", "action: CUSTOM, provider: {name: nosuch}, rules: [{to: [{operation: {paths: [/ip]}}]}]",
			[]string{"refused: denied by AuthorizationPolicy edge/ext spec.rules[0], whose provider nosuch cannot be used"},
			[]string{"AuthorizationPolicy edge/ext spec.rules[0], whose provider nosuch cannot be used"}, []string{`"policy": "istio-ext-authz-nosuch-ns[edge]`}},
		{"allowed", "rules: [{to: [{operation: {paths: [/other]}}]}]", []string{"refused: no rule of AuthorizationPolicy edge/allowed allows it\n"},
			[]string{"no rule of AuthorizationPolicy edge/allowed allows it"}, nil},
		{"bad", "action: DENY, rules: [{from: [{source: {ipBlocks: [10.0.0.300]}}]}]", []string{
			"refused: AuthorizationPolicy edge/bad cannot be enforced, so all requests are refused\n", "problem: AuthorizationPolicy edge/bad spec.rules[0]", "ipBlocks"},
			[]string{"AuthorizationPolicy edge/bad cannot be enforced, so all requests are refused"}, nil},
		{"good", "action: DENY, rules: [{from: [{source: {ipBlocks: [10.0.0.30]}}]}]", []string{"answers 404"}, []string{"no policy denies it"}, nil},
	} {
		folder, node := edgeNode(t, gateway+fmt.Sprintf(policy, c.name, c.spec))
		for command, wants := range map[string][]string{"why --address :8080": c.why, "authz check": c.check, "authz check -o json": c.json} {
			out, _, _ := ran(append(strings.Fields(command), "--config-dir", folder, "--to", node, "http://x.test/ip")...)
			for _, want := range wants {
				if !strings.Contains(out, want) || strings.Contains(out, "denied by ns[") {
					t.Errorf("%s: %s: want %q\n%s", c.name, command, want, out)
				}
			}
		}
	}
}
