package check

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/apiserver/apiservertest"
)

// world is a fake cluster without faults: its API server's answers by path. A test changes one of them.
type world struct {
	answers map[string]any
	denied  map[string]bool // rights, in the form of question.String
	ready   string          // text of the replica's /ready
	say     string          // its problems
	leader  string          // its page of the election
	fleet   string          // its page of the fleet
	another []byte          // root certificate of another CA
	asked   []string        // dry runs
	date    time.Duration   // error of its clock
	proxies string          // its answer about proxies; empty: it has no API
	// versions are those of the replicas, in the order of the requests, again and again; empty: no answer.
	versions      []string
	upgrade, tool string // of Config
}

// gatewaysPath is the path of all Gateways.
const gatewaysPath = "/apis/networking.istio.io/v1/gateways"

// podList returns the list of the control plane's only Pod, which is ready.
func podList(args, env string) string {
	return fmt.Sprintf(`{"items": [{"metadata": {"name": "a", "labels": {"istio.io/rev": "default"}}, "spec": {"serviceAccountName": "istiod", "containers": [{"args": [%s], "env": [%s]}]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}]}`, args, env)
}

func well(t *testing.T) (*world, tls.Certificate) {
	t.Helper()
	root, leaf := signed(t, "istiod.istio-system.svc")
	bundle := base64.StdEncoding.EncodeToString(root)
	one := func(name, webhook string) string {
		return fmt.Sprintf(`{"metadata": {"name": %q, "labels": {"istio.io/rev": "default"}}, "webhooks": [{"name": %q, "failurePolicy": "Fail",
			"clientConfig": {"caBundle": %q, "service": {"namespace": "istio-system", "name": "istiod", "port": 443}}}]}`, name, webhook, bundle)
	}
	hook := func(name, webhook string) string {
		return fmt.Sprintf(`{"items": [%s,
			{"metadata": {"name": "of-somebody-else"}, "webhooks": [{"name": "x", "clientConfig": {"service": {"namespace": "istio-system", "name": "x"}}}]}]}`, one(name, webhook))
	}
	const injection, validation = "rev.namespace.sidecar-injector.istio.io", "rev.validation.istio.io"
	resources := func(names ...string) any {
		var list []any
		for _, name := range names {
			list = append(list, map[string]any{"name": name})
		}
		return map[string]any{"resources": list}
	}
	another, _ := signed(t, "istiod.istio-system.svc")
	return &world{ready: "ok\n", another: another, say: `[]`,
		versions: []string{"1.3.0"}, proxies: `{"partial": [], "sums": {"total": {"in_sync": 7}}}`,
		fleet: `{"streams": 7}`, leader: fmt.Sprintf(`{"name": "a", "self": true, "writes": true, "read": %q}`, time.Now().Format(time.RFC3339)), denied: map[string]bool{}, answers: map[string]any{
			"/version":                           `{"major": "1", "minor": "36", "gitVersion": "v1.36.3"}`,
			"/apis/networking.istio.io/v1":       resources(kinds[0].resources...),
			"/apis/security.istio.io/v1beta1":    resources(kinds[1].resources...),
			"/apis/telemetry.istio.io/v1":        resources(kinds[2].resources...),
			"/apis/extensions.istio.io/v1alpha1": resources(kinds[3].resources...),
			gatewaysPath: `{"items": [{"metadata": {"namespace": "edge", "name": "shop"}, "spec": {"selector": {"istio": "ingressgateway"},
			"servers": [{"tls": {"mode": "SIMPLE", "credentialName": "shop-cert"}}, {}]}}]}`,
			"/api/v1/pods": `{"items": [{"metadata": {"namespace": "edge", "name": "gw-1"}, "spec": {"serviceAccountName": "gw"}}]}`,
			admission + "mutatingwebhookconfigurations":                        hook("istio-sidecar-injector", injection),
			admission + "mutatingwebhookconfigurations/istio-sidecar-injector": one("istio-sidecar-injector", injection),
			dryRunOfPod:                       `{"metadata": {"annotations": {"sidecar.istio.io/status": "{}"}}}`,
			dryRunOfGateway:                   fmt.Errorf("admission webhook %q denied the request: as asked", validation),
			"/api/v1/namespaces/istio-system": `{}`, "/api/v1/namespaces/default": `{}`,
			admission + "validatingwebhookconfigurations":                              hook("istio-validator-istio-system", validation),
			admission + "validatingwebhookconfigurations/istio-validator-istio-system": one("istio-validator-istio-system", validation),
			"/api/v1/namespaces/istio-system/services/istiod":                          `{"spec": {"ports": [{"port": 443, "targetPort": 15017}]}}`,
			"/apis/discovery.k8s.io/v1/namespaces/istio-system/endpointslices":         `{"items": [{"endpoints": [{"conditions": {"ready": true}}]}]}`,
			"/api/v1/namespaces/istio-system/pods":                                     podList(`"--roles=ingest,xds,ca,admit"`, ""),
			"/api/v1/namespaces/istio-system/configmaps/istio-ca-root-cert":            map[string]any{"data": map[string]any{"root-cert.pem": string(root)}},
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
	case r.Method == http.MethodPost && r.URL.RawQuery == "dryRun=All":
		w.dryRun(out, r.URL.Path)
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

// Names of the answers to dry runs: an object, or the error of a webhook.
const dryRunOfPod, dryRunOfGateway = "dry run of pods", "dry run of gateways"

func (w *world) dryRun(out http.ResponseWriter, path string) {
	what := "dry run of " + path[strings.LastIndexByte(path, '/')+1:]
	w.asked = append(w.asked, what)
	if err, failed := w.answers[what].(error); failed {
		out.WriteHeader(http.StatusInternalServerError)
		_ = json.NewEncoder(out).Encode(map[string]any{"kind": "Status", "message": err.Error()})
		return
	}
	fmt.Fprint(out, w.answers[what])
}

// results runs all checks against w, and returns their results by Result.Check.
func (w *world) results(t *testing.T, leaf tls.Certificate, pre bool) map[string]Result {
	t.Helper()
	pages := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Date", time.Now().Add(w.date).UTC().Format(http.TimeFormat))
		switch {
		case r.URL.Path == "/debug/problems":
			fmt.Fprint(out, w.say)
		case r.URL.Path == "/debug/leader":
			fmt.Fprint(out, w.leader)
		case r.URL.Path == "/debug/fleet":
			fmt.Fprint(out, w.fleet)
		case r.URL.Path == "/version" && w.versions[0] != "":
			fmt.Fprintf(out, `{"version": %q}`, w.versions[0])
			w.versions = append(w.versions[1:], w.versions[0])
		case r.URL.Path == "/api/v1/proxies" && w.proxies != "":
			fmt.Fprint(out, w.proxies)
		case r.URL.Path != "/ready":
			http.NotFound(out, r)
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
	all := Run(t.Context(), Config{API: apiservertest.Play(t, w.serve), Namespace: "istio-system", Pre: pre,
		Upgrade: w.upgrade, Tool: w.tool, Replica: func(*corev1.Pod) Replica { return one }})
	by := map[string]Result{}
	for _, r := range all {
		if r.Status != OK && r.Status != Unknown && r.Do == "" {
			t.Errorf("%+v does not say what to do", r)
		}
		by[r.Check] = r
	}
	return by
}
