package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/internal/report"
	"navarch.io/navarch/cmd/navarchctl/analyze"
	"navarch.io/navarch/cmd/navarchd/api"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/apiserver/apiservertest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// runAnalyze runs analyze with arguments, and returns its output, its notes and its error.
func runAnalyze(args ...string) (out, notes string, err error) {
	var stdout, stderr strings.Builder
	cmd := root()
	cmd.SetArgs(append([]string{"analyze"}, args...))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err = cmd.Execute()
	notes, next, _ := strings.Cut(stderr.String(), "next: navarchctl analyze --list ")
	if strings.Contains(next, "next: ") || strings.Count(next, "\n") > 1 {
		notes += next // only the last line says how to go on
	}
	return stdout.String(), notes, err
}

// lists are the objects of a cluster by the path of their list or object. Others are not there.
var lists = map[string]string{
	"/api/v1/namespaces": `{"metadata": {"name": "shop", "labels": {"istio-injection": "enabled"}}}, {"metadata": {"name": "edge"}}`,
	"/api/v1/services":   `{"metadata": {"name": "web", "namespace": "shop"}, "spec": {"clusterIP": "10.96.0.10", "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]}}`,
	"/api/v1/pods": `{"metadata": {"name": "edge-1", "namespace": "edge", "labels": {"app": "edge"}}, "spec": {"containers": [{"name": "istio-proxy", "image": "p"}]}, "status": {"phase": "Running", "podIP": "10.0.0.1"}},
		{"metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "a"}]}, "status": {"phase": "Running", "podIP": "10.0.0.2", "conditions": [{"type": "Ready", "status": "False"}]}}`,
	"/apis/discovery.k8s.io/v1/endpointslices": `{"metadata": {"name": "web-x", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4", "ports": [{"name": "http", "port": 80}],
		"endpoints": [{"addresses": ["10.0.0.2"], "conditions": {"ready": false}}]},
		{"metadata": {"name": "edge-x", "namespace": "edge", "labels": {"kubernetes.io/service-name": "edge"}}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}]}`,
	"/apis/networking.istio.io/v1/virtualservices": `{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"hosts": ["web"], "http": [{"route": [{"destination": {"host": "web"}}]}]}}`,
	"/apis/networking.istio.io/v1beta1/gateways": `{"apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway", "metadata": {"name": "edge", "namespace": "edge"}, "spec": {"selector": {"app": "edge"}, "servers": [
		{"port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "hosts": ["*"], "tls": {"mode": "SIMPLE", "credentialName": "cert"}}]}}`,
}

// clusterOf returns the kubeconfig of a cluster with these lists; forbidden are names of lists that may not be read.
func clusterOf(t *testing.T, forbidden ...string) (kubeconfig string) {
	return apiservertest.Kubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		items, is := lists[r.URL.Path]
		for _, plural := range forbidden {
			if strings.HasSuffix(r.URL.Path, "/"+plural) || plural == "secrets" && strings.Contains(r.URL.Path, "/secrets/") {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprintf(w, `{"reason": "Forbidden", "message": "%s is forbidden\nfor you"}`, plural)
				return
			}
		}
		if !is {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"metadata": {}, "items": [%s]}`, items)
	})
}

// noControlPlane returns the note about a cluster without a control plane, if it is one line.
func noControlPlane(notes string) string {
	if strings.HasPrefix(notes, "note: the control plane was not asked for codes that it alone knows") && strings.Count(notes, "\n") == 1 {
		return notes
	}
	return "one note about the control plane"
}

// A control plane is asked for what it alone knows. Where it is named by --server it must answer.
func TestAnalyzeAsksTheControlPlane(t *testing.T) {
	windows, replicas, changed := 0, 1, 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/replicas":
			_ = json.NewEncoder(w).Encode(fleetapi.Answer[api.Replica]{Schema: fleetapi.Schema,
				Items: slices.Repeat([]api.Replica{{Proxies: 2}}, replicas)})
			return
		case "/api/v1/patches":
			a := fleetapi.Answer[inspect.Patch]{Schema: fleetapi.Schema, Items: []inspect.Patch{{Object: "EnvoyFilter shop/f", Index: 1,
				ApplyTo: "CLUSTER", Operation: "MERGE", Changed: &changed}}}
			if replicas == 3 {
				a.Partial = []fleetapi.Missing{{Replica: "b", Reason: "no answer"}, {Replica: "c", Reason: "no answer"}}
			}
			_ = json.NewEncoder(w).Encode(a)
			return
		case "/api/v1/problems":
			windows++
		default:
			t.Errorf("%s", r.URL)
		}
		a := fleetapi.Answer[analyze.Reported]{Schema: fleetapi.Schema}
		if r.URL.Query().Get("continue") == "" {
			a.Next = "more"
		} else {
			a.Items = []analyze.Reported{{Object: "VirtualService shop/web", Analyzer: "NAV1005", Message: "route was refused:\nx", Proxies: 7}}
		}
		_ = json.NewEncoder(w).Encode(a)
	}))
	defer s.Close()
	kubeconfig := clusterOf(t)
	out, notes, _ := runAnalyze("--kubeconfig", kubeconfig, "--server", s.URL, "-n", "shop")
	if !strings.Contains(out, `Error [NAV1005] (VirtualService shop/web) 7 proxies refuse it: route was refused:\nx`+"\n") || notes != "" || windows != 2 {
		t.Errorf("%d windows, notes %q:\n%s", windows, notes, out)
	}
	const idle = "Warning [NAV1012] (EnvoyFilter shop/f) spec.configPatches[1]: MERGE of CLUSTER changes nothing of the connected proxies"
	if !strings.Contains(out, idle) {
		t.Errorf("a patch without effect: %s", out)
	}
	changed = 1
	if out, _, _ := runAnalyze("--kubeconfig", kubeconfig, "--server", s.URL); strings.Contains(out, "NAV1012") {
		t.Errorf("a patch with an effect: %s", out)
	}
	changed, replicas = 0, 0
	if out, notes, _ := runAnalyze("--kubeconfig", kubeconfig, "--server", s.URL); strings.Contains(out, "NAV1012") || notes != "" {
		t.Errorf("without proxies: notes %q:\n%s", notes, out)
	}
	replicas = 3
	if out, notes, _ := runAnalyze("--kubeconfig", kubeconfig, "--server", s.URL); strings.Contains(out, "NAV1012") ||
		notes != "note: patches without effect are not known (NAV1012): 2 of 3 replicas did not answer\n" {
		t.Errorf("one of three replicas: notes %q:\n%s", notes, out)
	}
	s.Close()
	if _, _, err := runAnalyze("--kubeconfig", kubeconfig, "--server", s.URL); err == nil {
		t.Error("a control plane that does not answer is no error")
	}
	if _, _, err := runAnalyze("--server", s.URL, "-f", "x.yaml"); err == nil || !strings.Contains(err.Error(), "--live") {
		t.Errorf("files alone: %v", err)
	}
}

// An empty list of a leader, which serves no proxies, does not count as the answer of a replica. Of two replicas that
// cannot ask each other one is not listed in --server.
func TestAnalyzeCountsReplicasWithoutTheLeader(t *testing.T) {
	unable := fleetapi.Missing{Replica: "istiod-1", Reason: "plain text", Unable: true}
	changed := 0
	serve := func(name string, serves bool, items ...inspect.Patch) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			alone := r.URL.Query().Get("alone") == "true"
			switch r.URL.Path {
			case "/api/v1/replicas":
				_ = json.NewEncoder(w).Encode(fleetapi.Answer[api.Replica]{Schema: fleetapi.Schema,
					Items: []api.Replica{{Proxies: 2}, {Proxies: 2}}})
			case "/api/v1/problems":
				_ = json.NewEncoder(w).Encode(fleetapi.Answer[fleetapi.Problem]{Schema: fleetapi.Schema})
			case "/api/v1/patches":
				a := fleetapi.Answer[inspect.Patch]{Schema: fleetapi.Schema, Items: items}
				switch {
				case !serves && alone:
					http.Error(w, fleetapi.ServesNone+": ask one with role xds", http.StatusNotFound)
					return
				case alone:
					a.Replica = name
				default:
					a.Partial = []fleetapi.Missing{unable}
				}
				_ = json.NewEncoder(w).Encode(a)
			default:
				fmt.Fprint(w, "[]")
			}
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	filter := inspect.Patch{Object: "EnvoyFilter shop/f", Changed: &changed}
	leader, first, second := serve("leader", false), serve("istiod-0", true, filter), serve("istiod-1", true, filter)
	for servers, want := range map[string]string{
		leader + "," + first:                "note: patches without effect are not known (NAV1012): 1 of 2 replicas did not answer\n",
		leader + "," + first + "," + second: "",
	} {
		out, notes, _ := runAnalyze("--kubeconfig", clusterOf(t), "--server", servers)
		if strings.Contains(out, "NAV1012") != (want == "") || notes != want {
			t.Errorf("%s: notes %q:\n%s", servers, notes, out)
		}
	}
}

// A Service is named live if none of its Pods is ready.
func TestAnalyzeNamesServicesWithoutEndpoints(t *testing.T) {
	out, _, _ := runAnalyze("--kubeconfig", clusterOf(t), "-n", "shop")
	want := `Info [NAV1011] (Service shop/web) spec.selector: "web.shop.svc.cluster.local" has no ready endpoint (1 that are not ready): ` +
		"calls of it are answered 503\n"
	if !strings.Contains(out, want) {
		t.Errorf("%s", out)
	}
	unready := lists["/apis/discovery.k8s.io/v1/endpointslices"]
	lists["/apis/discovery.k8s.io/v1/endpointslices"] = strings.Replace(unready, `"ready": false`, `"ready": true`, 1)
	t.Cleanup(func() { lists["/apis/discovery.k8s.io/v1/endpointslices"] = unready })
	if out, _, _ := runAnalyze("--kubeconfig", clusterOf(t), "-n", "shop"); strings.Contains(out, "NAV1011") {
		t.Errorf("a ready endpoint: %s", out)
	}
}

// The budget of bytes for each proxy is a quantity, and is compared with a plan of the sidecars.
func TestAnalyzeProxyBytes(t *testing.T) {
	labels := lists["/api/v1/pods"]
	lists["/api/v1/pods"] = strings.Replace(labels, `"labels": {"app": "web"}`,
		`"labels": {"app": "web", "security.istio.io/tlsMode": "istio"}`, 1)
	t.Cleanup(func() { lists["/api/v1/pods"] = labels })
	out, _, _ := runAnalyze("--kubeconfig", clusterOf(t), "--proxy-bytes", "1Ki")
	if !strings.Contains(out, "Warning [NAV1016] (Namespace shop) sidecars such as web-1.shop get ") {
		t.Errorf("%s", out)
	}
	if out, _, _ := runAnalyze("--kubeconfig", clusterOf(t), "--proxy-bytes", "10Mi"); strings.Contains(out, "NAV1016") {
		t.Errorf("within the budget: %s", out)
	}
	for _, wrong := range []string{"much", "-1", "0"} {
		if _, _, err := runAnalyze("-f", "x.yaml", "--proxy-bytes", wrong); err == nil || !strings.Contains(err.Error(), "--proxy-bytes") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// A cluster is analyzed by its lists: also of older versions. A route to a Pod that is not ready is found, and a Secret
// that is not there.
func TestAnalyzeCluster(t *testing.T) {
	out, notes, err := runAnalyze("--kubeconfig", clusterOf(t))
	want := `Error [IST0101] (Gateway edge/edge) spec.servers[0].tls.credentialName: Secret edge/cert does not exist: the server closes its connections
Warning [IST0103] (Pod shop/web-1) spec.containers: has no proxy, though a Pod with its labels gets one now: restart the workload
Warning [NAV1001] (VirtualService shop/web) spec.http[0].route[0].destination.host: service "web.shop.svc.cluster.local" has no ready endpoint: requests to it are answered 503
Info [IST0102] (Namespace edge) metadata.labels: Pods without the label sidecar.istio.io/inject get no proxy: label the namespace istio-injection=enabled, or istio-injection=disabled if no Pod shall have one, also no gateway
Info [NAV1011] (Service shop/web) spec.selector: "web.shop.svc.cluster.local" has no ready endpoint (1 that are not ready): calls of it are answered 503

1 error, 2 warnings, 2 infos.
`
	if found := (exitError{}); out != want || notes != noControlPlane(notes) || !errors.As(err, &found) || found.ExitCode() != 2 {
		t.Errorf("%v, notes %q:\n%s", err, notes, out)
	}
	if out, _, err := runAnalyze("--kubeconfig", clusterOf(t), "-n", "shop", "--fail-threshold", "error"); err != nil || strings.Contains(out, "edge") || !strings.Contains(out, "NAV1001") {
		t.Errorf("namespace shop: %v\n%s", err, out)
	}
}

// Kinds that may not be read are noted on one line, and what needs them is left out. Without Services there is no
// analysis.
func TestAnalyzeWithoutRights(t *testing.T) {
	out, notes, err := runAnalyze("--kubeconfig", clusterOf(t, "secrets", "namespaces", "nodes"))
	if err != nil || strings.Contains(out, "IST0101") || strings.Contains(out, "IST0103") || !strings.Contains(out, "NAV1001") ||
		!strings.Contains(notes, "note: objects of kind Secret were not read: secrets is forbidden\\nfor you\n") || strings.Count(notes, "\n") != 4 {
		t.Errorf("%v, notes %q:\n%s", err, notes, out)
	}
	if _, _, err := runAnalyze("--kubeconfig", clusterOf(t, "services")); err == nil || !strings.Contains(err.Error(), "services of all namespaces must be readable") {
		t.Errorf("%v", err)
	}
}

// Files stand over the cluster; --new reports what they add, and not what the cluster has.
func TestAnalyzeFilesOverACluster(t *testing.T) {
	t.Chdir(t.TempDir())
	const file = `
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: web, namespace: shop}, spec: {hosts: [web], http: [{redirect: {uri: /}}]}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: web, namespace: shop}, spec: {host: wbe}}
`
	if err := os.WriteFile("change.yaml", []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	kubeconfig := clusterOf(t)
	out, _, err := runAnalyze("--kubeconfig", kubeconfig, "-f", "change.yaml", "--new")
	if want := "Warning [IST0174] (DestinationRule shop/web change.yaml:4) spec.host: no service has host \"wbe.shop.svc.cluster.local\"\n\n1 warning.\n"; err != nil || out != want {
		t.Errorf("%v:\n%s", err, out)
	}
	if out, _, err := runAnalyze("--kubeconfig", kubeconfig, "-f", "change.yaml", "--live"); err == nil || strings.Contains(out, "NAV1001") || !strings.Contains(out, "IST0103") {
		t.Errorf("over the cluster: %v\n%s", err, out)
	}
	if out, _, err := runAnalyze("--kubeconfig", kubeconfig, "-f", "change.yaml"); err != nil || strings.Contains(out, "IST0103") {
		t.Errorf("alone: %v\n%s", err, out)
	}
}

// The analysis of a report finds the processes' problems, and names the codes that are not checked and why.
// Promise: analysis.md#a-report
func TestAnalyzeReport(t *testing.T) {
	for _, c := range []struct{ file, note string }{
		{reportOf(t, true), "note: not checked on a report: IST0102, IST0103, "},
		{reportOf(t, true), "note: not checked on a report: NAV1012: the report lacks a replica, its patches, or any proxy\n"},
		{reportOf(t, false), "NAV1017, NAV1018: the report has no records\n"},
	} {
		out, notes, err := runAnalyze("--snapshot", c.file, "-n", "shop")
		if err != nil || !strings.Contains(notes, c.note) {
			t.Errorf("%v\n%swant %q", err, notes, c.note)
		}
		if !strings.Contains(out, "known by the leader") || strings.Contains(out, "[IST0118] (Service shop/web)") == (c.note[0] == 'N') {
			t.Errorf("%q: %s", c.note, out)
		}
	}
}

// reportOf returns the file of a report with a problem. If records is set, it has a Service whose port lacks a name.
func reportOf(t *testing.T, records bool) string {
	t.Helper()
	whole, part := report.NewWriter(time.Unix(1, 0)), report.NewPart("a", time.Unix(1, 0))
	errs := []error{whole.Index(report.Index{Created: time.Unix(1, 0)}), part.Facts(&report.Facts{Name: "a", Cluster: "Kubernetes"}),
		part.JSON("problems.json", []inspect.Problem{{Object: "VirtualService shop/web", Code: "NotFound", Severity: "warning",
			Message: "known by the leader"}})}
	if records {
		spec := &model.ServiceSpec{Hosts: []string{"web.shop.svc.cluster.local"}, ExportTo: []string{"*"},
			Ports: []*model.ServicePort{{Number: 80, Protocol: model.Protocol_PROTOCOL_AUTO}}}
		r, err := model.New(model.Key{Kind: model.KindService, Origin: analyze.Origin, Namespace: "shop", Name: "web"}, 1, spec)
		errs = append(errs, err, part.Records(mirror.Empty().Apply(1, []model.Record{r}, nil).New))
	}
	first, err := whole.Member(false)
	last, more := part.Member(true)
	if err := errors.Join(append(errs, err, more)...); err != nil {
		t.Fatal(err)
	}
	raw := append(first, last...)
	file := filepath.Join(t.TempDir(), "report.tgz")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
