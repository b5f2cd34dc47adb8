package check

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/docs"
	"navarch.io/navarch/store/apiserver/apiservertest"
)

const admission = "/apis/admissionregistration.k8s.io/v1/"

// The rights that are asked about are those that the documentation tells operators to give.
func TestRightsAreTheDocumented(t *testing.T) {
	want := map[string][]rbacv1.PolicyRule{}
	for document := range strings.SplitSeq(docs.YAML(t, "kubernetes.md", "\n## Rights\n"), "\n---\n") {
		var role struct {
			Kind  string
			Rules []rbacv1.PolicyRule
		}
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		want[role.Kind] = append(want[role.Kind], role.Rules...)
	}
	for kind, rules := range map[string][]rule{"ClusterRole": clusterRules, "Role": namespaceRules} {
		var got []rbacv1.PolicyRule
		for _, r := range rules {
			got = append(got, r.PolicyRule)
		}
		if !reflect.DeepEqual(got, want[kind]) {
			t.Errorf("%s:\n%+v\nwant\n%+v", kind, got, want[kind])
		}
	}
}

// Whoever installs is asked about creating each kind of object that the templates of the chart have; those of the Prometheus operator aside, which a value asks for.
func TestInstallsAreTheCharts(t *testing.T) {
	files, err := filepath.Glob("../../../deploy/chart/templates/*")
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{"apiextensions.k8s.io/customresourcedefinitions": true} // their text is not a template
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`(?m)^apiVersion: (\S+)\nkind: (\S+)`).FindAllStringSubmatch(string(text), -1) {
			group, _, versioned := strings.Cut(match[1], "/")
			if !versioned {
				group = ""
			}
			plural := strings.ToLower(match[2]) + "s"
			if stem, is := strings.CutSuffix(plural, "ys"); is {
				plural = stem + "ies"
			}
			if group != "monitoring.coreos.com" {
				made[group+"/"+plural] = true
			}
		}
	}
	asked := map[string]bool{}
	for _, i := range installs {
		asked[i.group+"/"+i.resource] = true
	}
	if !maps.Equal(asked, made) || len(made) < 15 {
		t.Errorf("asked about are %q,\nthe chart has %q", slices.Sorted(maps.Keys(asked)), slices.Sorted(maps.Keys(made)))
	}
}

// signed is a root, and a certificate of it for a name.
func signed(t *testing.T, name string) (root []byte, leaf tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, DNSNames: []string{name}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// world is a cluster where all is well, as answers by path; a test breaks one of them.
type world struct {
	answers map[string]any
	denied  map[string]bool // rights, as a question is printed
	ready   string          // what the replica's /ready says
	say     string          // its problems
	replica error           // why there is none
	date    time.Duration   // how far its clock is off
}

// podList is the control plane's one Pod, which is ready.
func podList(args, env string) string {
	return fmt.Sprintf(`{"items": [{"metadata": {"name": "a"}, "spec": {"serviceAccountName": "istiod", "containers": [{"args": [%s], "env": [%s]}]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}]}`, args, env)
}

func well(t *testing.T) (*world, tls.Certificate) {
	t.Helper()
	root, leaf := signed(t, "istiod.istio-system.svc")
	bundle := base64.StdEncoding.EncodeToString(root)
	hook := func(name, webhook string) string {
		return fmt.Sprintf(`{"items": [{"metadata": {"name": %q, "labels": {"istio.io/rev": "default"}}, "webhooks": [{"name": %q, "failurePolicy": "Fail",
			"clientConfig": {"caBundle": %q, "service": {"namespace": "istio-system", "name": "istiod", "port": 443}}}]},
			{"metadata": {"name": "of-somebody-else"}, "webhooks": [{"name": "x", "clientConfig": {"service": {"namespace": "istio-system", "name": "x"}}}]}]}`, name, webhook, bundle)
	}
	resources := func(names ...string) any {
		var list []any
		for _, name := range names {
			list = append(list, map[string]any{"name": name})
		}
		return map[string]any{"resources": list}
	}
	return &world{ready: "ok\n", say: `[]`, denied: map[string]bool{}, answers: map[string]any{
		"/version":                                                         `{"major": "1", "minor": "36", "gitVersion": "v1.36.3"}`,
		"/apis/networking.istio.io/v1":                                     resources(kinds[0].resources...),
		"/apis/security.istio.io/v1beta1":                                  resources(kinds[1].resources...),
		"/apis/telemetry.istio.io/v1":                                      resources(kinds[2].resources...),
		"/apis/extensions.istio.io/v1alpha1":                               resources(kinds[3].resources...),
		admission + "mutatingwebhookconfigurations":                        hook("istio-sidecar-injector", "rev.namespace.sidecar-injector.istio.io"),
		admission + "validatingwebhookconfigurations":                      hook("istio-validator-istio-system", "rev.validation.istio.io"),
		"/api/v1/namespaces/istio-system/services/istiod":                  `{"spec": {"ports": [{"port": 443, "targetPort": 15017}]}}`,
		"/apis/discovery.k8s.io/v1/namespaces/istio-system/endpointslices": `{"items": [{"endpoints": [{"conditions": {"ready": true}}]}]}`,
		"/api/v1/namespaces/istio-system/pods":                             podList(`"--roles=xds,ca,admit"`, ""),
		"/api/v1/namespaces/istio-system/configmaps/istio-ca-root-cert":    map[string]any{"data": map[string]any{"root-cert.pem": string(root)}},
	}}, leaf
}

// serve answers as an API server.
func (w *world) serve(out http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	switch {
	case strings.HasSuffix(r.URL.Path, "accessreviews"):
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		q := question{resource: review.Spec.ResourceAttributes, path: review.Spec.NonResourceAttributes}
		review.Status.Allowed = !w.denied[q.String()]
		_ = json.NewEncoder(out).Encode(review)
	case w.answers[r.URL.Path] == nil:
		out.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(out, `{"reason": "NotFound", "message": "%s not found"}`, r.URL.Path)
	default:
		switch a := w.answers[r.URL.Path].(type) {
		case string:
			fmt.Fprint(out, a)
		case int:
			out.WriteHeader(a)
		default:
			_ = json.NewEncoder(out).Encode(a)
		}
	}
}

// results are the lines about a world, by what was looked at.
func (w *world) results(t *testing.T, leaf tls.Certificate, pre bool) map[string]Result {
	t.Helper()
	pages := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Date", time.Now().Add(w.date).UTC().Format(http.TimeFormat))
		switch {
		case r.URL.Path == "/debug/problems":
			fmt.Fprint(out, w.say)
		case strings.HasPrefix(w.ready, "ok"):
			fmt.Fprint(out, w.ready)
		default:
			http.Error(out, w.ready, http.StatusServiceUnavailable)
		}
	}))
	defer pages.Close()
	hooks, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{leaf}})
	if err != nil {
		t.Fatal(err)
	}
	defer hooks.Close()
	go func() {
		for {
			conn, err := hooks.Accept()
			if err != nil {
				return
			}
			go func() { _ = conn.(*tls.Conn).Handshake(); conn.Close() }()
		}
	}()
	at := map[int]string{8080: pages.Listener.Addr().String(), 15014: pages.Listener.Addr().String(), 15017: hooks.Addr().String()}
	dial := func(ctx context.Context, port int) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", at[port])
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, 8080) }}}
	one := Replica{Name: "Pod a", Monitoring: 15014, Client: client, Dial: dial}
	all := Run(t.Context(), Config{API: apiservertest.Play(t, w.serve), Namespace: "istio-system", Pre: pre, Replica: func(*corev1.Pod) Replica { return one }, Replicas: func(context.Context) ([]Replica, error) {
		if w.replica != nil {
			return nil, w.replica
		}
		return []Replica{one}, nil
	}})
	by := map[string]Result{}
	for _, r := range all {
		if r.Status != OK && r.Status != Unknown && r.Do == "" {
			t.Errorf("%+v does not say what to do", r)
		}
		by[r.Check] = r
	}
	return by
}

const (
	injector       = "MutatingWebhookConfiguration istio-sidecar-injector, rev.namespace.sidecar-injector.istio.io"
	validator      = "ValidatingWebhookConfiguration istio-validator-istio-system, rev.validation.istio.io"
	serviceAccount = "rights of service account istiod (xds, ca, admit)"
	workload       = "certificate and configuration of a workload"
)

// Where all is well every line says so, but for the workload's, which has no secure address here. Each fault changes its own line, and says what it is.
func TestRun(t *testing.T) {
	w, leaf := well(t)
	good := w.results(t, leaf, false)
	if len(good) < 10 {
		t.Errorf("%d lines", len(good))
	}
	for name, r := range good {
		if r.Status != OK && name != workload {
			t.Errorf("%+v", r)
		}
	}
	services := "/api/v1/namespaces/istio-system/services/istiod"
	for name, one := range map[string]struct {
		spoil  func(*world)
		line   string
		status Status
		found  string
	}{
		"old Kubernetes":       {func(w *world) { w.answers["/version"] = `{"major": "1", "minor": "24+", "gitVersion": "v1.24.1"}` }, "API server", Failure, "v1.24.1"},
		"no API server":        {func(w *world) { delete(w.answers, "/version") }, "API server", Failure, "404"},
		"a kind is not served": {func(w *world) { delete(w.answers, "/apis/security.istio.io/v1beta1") }, "definitions of security.istio.io", Warning, "peerauthentications"},
		"a right is missing":   {func(w *world) { w.denied["create subjectaccessreviews.authorization.k8s.io"] = true }, serviceAccount, Failure, "missing: create subjectaccessreviews"},
		"a role's right alone": {func(w *world) { w.denied["list services"] = true }, serviceAccount, OK, "none that is needed is missing"},
		"a right of another role": {func(w *world) {
			w.answers["/api/v1/namespaces/istio-system/pods"] = podList(`"--roles=ingest"`, "")
			w.denied["list configmaps istio-sidecar-injector in istio-system"] = true
		}, "rights of service account istiod (ingest)", OK, "none that is needed is missing"},
		"an optional right":      {func(w *world) { w.denied["create tokenreviews.authentication.k8s.io"] = true }, serviceAccount + ", for --token-review", Warning, "missing: create tokenreviews"},
		"pods may not be seen":   {func(w *world) { w.answers["/api/v1/namespaces/istio-system/pods"] = 403 }, "rights", Unknown, "you may not see it"},
		"no replica":             {func(w *world) { w.replica = errors.New("none is ready") }, "replicas", Failure, "none is ready"},
		"a replica is not ready": {func(w *world) { w.ready = "sealed" }, "Pod a", Failure, "not ready: sealed"},
		"a note":                 {func(w *world) { w.ready = "ok\nno signatures" }, "Pod a", Warning, "no signatures"},
		"its clock":              {func(w *world) { w.date = -time.Hour }, "clock of Pod a", Failure, "1h0m"},
		"etcd fills":             {func(w *world) { w.say = `[{"object": "etcd", "severity": "warning", "message": "it is at 85 %"}]` }, "etcd, by Pod a", Warning, "85 %"},
		"etcd is full, then more": {func(w *world) {
			w.say = `[{"object": "etcd", "severity": "error", "message": "it is full"}, {"object": "etcd", "severity": "warning", "message": "more"}]`
		}, "etcd, by Pod a", Failure, "full"},
		"etcd is full":   {func(w *world) { w.say = `[{"object": "etcd", "severity": "error", "message": "it is full"}]` }, "etcd, by Pod a", Failure, "full"},
		"other problems": {func(w *world) { w.say = `[{"object": "VirtualService a/b", "severity": "error", "message": "x"}]` }, "configuration, by Pod a", Warning, "1 problems"},
		"no Service":     {func(w *world) { delete(w.answers, services) }, injector, Failure, "Service istio-system/istiod, to which it leads: "},
		"no port":        {func(w *world) { w.answers[services] = `{"spec": {"ports": [{"port": 15012}]}}` }, validator, Failure, "has no port 443"},
		"no endpoint": {func(w *world) {
			w.answers["/apis/discovery.k8s.io/v1/namespaces/istio-system/endpointslices"] = `{"items": [{"endpoints": [{"conditions": {"ready": false}}]}]}`
		},
			injector, Failure, "has no ready endpoint"},
		"no caBundle": {replaced("mutatingwebhookconfigurations", `"caBundle"`, `"other"`), injector, Failure, "caBundle is empty"},
		"another root": {func(w *world) {
			root, _ := signed(t, "istiod.istio-system.svc")
			w.answers[admission+"validatingwebhookconfigurations"] = strings.Replace(w.answers[admission+"validatingwebhookconfigurations"].(string),
				`"caBundle": "`, `"caBundle": "`+base64.StdEncoding.EncodeToString(root)+`", "not": "`, 1)
		}, validator, Failure, "certificate signed by unknown authority"},
		"it fails open": {replaced("validatingwebhookconfigurations", `"Fail"`, `"Ignore"`), validator, Warning, "wrong objects pass"},
		"no webhook":    {func(w *world) { w.answers[admission+"mutatingwebhookconfigurations"] = `{}` }, "MutatingWebhookConfiguration", Warning, "Pods get no proxies"},
		"no roots":      {func(w *world) { delete(w.answers, "/api/v1/namespaces/istio-system/configmaps/istio-ca-root-cert") }, workload, Failure, "istio-ca-root-cert"},
		"no roots of a signer": {func(w *world) {
			delete(w.answers, "/api/v1/namespaces/istio-system/configmaps/istio-ca-root-cert")
			w.answers["/api/v1/namespaces/istio-system/pods"] = podList(`"--roles=xds,ca"`, `{"name": "EXTERNAL_CA", "value": "ISTIOD_RA_KUBERNETES_API"}`)
		}, workload, Unknown, "istio-ca-root-cert"},
		"no roots of another CA": {func(w *world) {
			delete(w.answers, "/api/v1/namespaces/istio-system/configmaps/istio-ca-root-cert")
			w.answers["/api/v1/namespaces/istio-system/pods"] = podList(`"--roles=xds"`, "")
		}, workload, Unknown, "istio-ca-root-cert"},
		"no token to be": {func(w *world) { w.answers["/api/v1/namespaces/istio-system/serviceaccounts/default/token"] = 403 }, workload, Unknown, "you may not see it"},
	} {
		w, leaf := well(t)
		one.spoil(w)
		got := w.results(t, leaf, false)
		line := got[one.line]
		if line.Status != one.status || !strings.Contains(line.Found, one.found) {
			t.Errorf("%s: %+v, want %s %q", name, line, one.status, one.found)
		}
	}
}

func replaced(of, old, with string) func(*world) {
	return func(w *world) {
		w.answers[admission+of] = strings.Replace(w.answers[admission+of].(string), old, with, 1)
	}
}

// Before there is a control plane: what is in the way, and what whoever installs it may not do.
func TestPre(t *testing.T) {
	w, leaf := well(t)
	got := w.results(t, leaf, true)
	if r := got["control planes that are there"]; r.Status != Warning || !strings.Contains(r.Found, "istio-sidecar-injector, istio-validator-istio-system") {
		t.Errorf("%+v", r)
	}
	if r := got["your rights to install"]; r.Status != OK {
		t.Errorf("%+v", r)
	}
	w.answers = map[string]any{"/version": w.answers["/version"], admission + "mutatingwebhookconfigurations": `{}`, admission + "validatingwebhookconfigurations": `{}`}
	w.denied = map[string]bool{"create clusterroles.rbac.authorization.k8s.io": true, "list secrets in istio-system": true}
	got = w.results(t, leaf, true)
	if r := got["your rights to install"]; r.Status != Failure || !strings.Contains(r.Found, "create clusterroles.rbac.authorization.k8s.io") {
		t.Errorf("%+v", r)
	}
	if r := got["your rights to install, for other clusters"]; r.Status != Warning || !strings.Contains(r.Found, "list secrets in istio-system") {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"control planes that are there", "definitions of networking.istio.io", "API server"} {
		if r := got[name]; r.Status != OK {
			t.Errorf("%+v", r)
		}
	}
	if !Failed([]Result{{Status: OK}, {Status: Failure}}) || Failed([]Result{{Status: Warning}, {Status: Unknown}}) {
		t.Error("what failed is not told from what did not")
	}
	if got["Pod a"].Check != "" {
		t.Error("a replica was asked")
	}
}
