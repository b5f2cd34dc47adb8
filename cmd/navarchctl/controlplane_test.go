package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/cri-streaming/pkg/streaming/portforward"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/store/apiserver/apiservertest"
)

// forwarded connects to the server in a Pod, by the Pod's name: a replica, or with the suffix :15000 an Envoy.
type forwarded map[string]http.HandlerFunc

// PortForward implements portforward.PortForwarder: one connection to a port of a Pod.
func (f forwarded) PortForward(_ context.Context, name, _ string, port int32, stream io.ReadWriteCloser) error {
	if port != 15014 {
		name = fmt.Sprint(name, ":", port)
	}
	if f[name] == nil {
		return fmt.Errorf("nobody listens on %d of %s", port, name)
	}
	web := httptest.NewServer(f[name])
	defer web.Close()
	conn, err := net.Dial("tcp", web.Listener.Addr().String())
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(conn, stream) }()
	_, err = io.Copy(stream, conn)
	return err
}

// replicas starts an API server with ready Pods, each with one proxy. The Pod gone does not answer.
func replicas(t *testing.T) (kubeconfig string) {
	t.Helper()
	pages := func(proxy string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			id := r.URL.Query().Get("proxyID")
			has := id == proxy || id == "web.0.shop" && proxy == "web-0.shop"
			switch {
			case r.URL.Path == "/debug/syncz":
				fmt.Fprintf(w, `[{"proxy": %q, "revision": 9007199254740993, "cluster_id": "Kubernetes", "cluster_sent": "1", "cluster_acked": "1"}]`, proxy)
			case r.URL.Path == "/debug/connections":
				fmt.Fprintf(w, `{"clients": [{"proxy": %q}]}`, proxy)
			case r.URL.Path == "/version":
				fmt.Fprintf(w, `{"version": "of %s", "golang_version": "go1"}`, proxy)
			case strings.HasPrefix(r.URL.Path, fleetapi.Root): // these replicas are of a version without the API
				http.NotFound(w, r)
			case !has:
				http.Error(w, fmt.Sprintf("proxy %q is not connected to this replica", r.URL.Query().Get("proxyID")), http.StatusNotFound)
			case r.URL.Path == "/debug/config_dump" && proxy == "web-0.shop" && r.URL.Query().Get("types") == "":
				fmt.Fprint(w, envoyDump)
			case r.URL.Path == "/debug/config_dump":
				fmt.Fprint(w, `{"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "dynamic_active_clusters": [{"cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "outbound|80||`+proxy+`"}}]}]}`)
			default:
				http.Error(w, "the proxy has no resource", http.StatusNotFound)
			}
		}
	}
	f := forwarded{"istiod-0": pages("web-0.shop"), "istiod-1": pages("db-0.shop"), "web-0:15000": envoyAnswers, "web.0:15000": envoyAnswers}
	pod := func(name string) string {
		return fmt.Sprintf(`{"metadata": {"namespace": "istio-system", "name": %q, "labels": {"app": "istiod"}}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`, name)
	}
	return apiservertest.Kubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		switch name, is := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/istio-system/pods/"), "/portforward"); {
		case is && r.Method == http.MethodPost:
			portforward.ServePortForward(w, r, f, path.Base(name), "", nil, time.Minute, time.Minute, portforward.SupportedProtocols)
		case is:
			http.Error(w, "no websockets", http.StatusBadRequest)
		case r.URL.Path == "/api/v1/namespaces/shop/pods/web-0", r.URL.Path == "/api/v1/namespaces/shop/pods/web.0":
			fmt.Fprintf(w, `{"metadata": {"namespace": "shop", "name": %q}}`, path.Base(r.URL.Path))
		case r.URL.Path == "/apis/apps/v1/namespaces/shop/deployments/web":
			fmt.Fprint(w, `{"spec": {"selector": {"matchLabels": {"app": "web"}}}}`)
		case r.URL.Path == "/api/v1/namespaces/shop/pods" && r.URL.Query().Get("labelSelector") == "app=web":
			fmt.Fprint(w, `{"items": [{"metadata": {"name": "web-1"}}, {"metadata": {"name": "web-0"}}, {"metadata": {"name": "web-a"}}]}`)
		case strings.HasPrefix(r.URL.Path, "/apis/apps/"):
			http.Error(w, `{"kind": "Status", "reason": "NotFound", "message": "there is none"}`, http.StatusNotFound)
		default:
			fmt.Fprintf(w, `{"items": [%s, %s, %s, %s]}`, pod("istiod-0"), pod("istiod-1"), pod("gone"), strings.Replace(pod("starting"), `"True"`, `"False"`, 1))
		}
	})
}

// ran returns the output of a command, and the error with which it ended.
func ran(args ...string) (out, warnings string, err error) {
	var stdout, stderr bytes.Buffer
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err = cmd.Execute()
	return stdout.String(), stderr.String(), err
}

// Commands find the replicas by the kubeconfig: common lists are merged, a proxy's configuration is requested from its
// replica, and a replica without an answer is reported. A stated address takes precedence.
func TestCommandsFindTheCluster(t *testing.T) {
	kubeconfig := replicas(t)
	t.Setenv("KUBECONFIG", kubeconfig)
	out, warnings, err := ran("proxy-status")
	if err != nil || !strings.Contains(out, "REPLICA") || strings.Index(out, "db-0.shop") > strings.Index(out, "web-0.shop") || !strings.Contains(out, "9007199254740993") {
		t.Errorf("proxy-status: %v\n%s", err, out)
	}
	for _, line := range []string{"db-0.shop", "web-0.shop"} {
		if !strings.Contains(out, line) {
			t.Errorf("no %s in\n%s", line, out)
		}
	}
	if !strings.Contains(warnings, "2 replicas are not in it: starting (unknown, not ready), Pod istio-system/gone (no answer)") {
		t.Errorf("warnings %q", warnings)
	}
	for _, object := range []string{"deploy/web.shop", "deployment/web", "pod/web-0"} {
		if out, _, err := ran("pc", "c", object, "-n", map[bool]string{true: "", false: "shop"}[strings.Contains(object, ".")]); err != nil || !strings.Contains(out, "web-0.shop") {
			t.Errorf("%s: %v\n%s", object, err, out)
		}
	}
	out, _, err = ran("ps", "web-0", "-n", "shop", "-o", "json", "--istioNamespace", "istio-system")
	var all []map[string]any
	if err != nil || json.Unmarshal([]byte(out), &all) != nil || len(all) != 1 || all[0]["replica"] != "Pod istio-system/istiod-0" {
		t.Errorf("one proxy: %v\n%s", err, out)
	}
	if out, _, err = ran("pc", "c", "db-0"); err != nil || !strings.Contains(out, "db-0.shop") {
		t.Errorf("proxy-config: %v\n%s", err, out)
	}
	if out, _, err = ran("version", "--short"); err != nil || !strings.Contains(out, "Pod istio-system/istiod-0: of web-0.shop\n") || !strings.Contains(out, "Pod istio-system/istiod-1: of db-0.shop\n") {
		t.Errorf("version: %v\n%s", err, out)
	}
	for _, one := range []struct {
		args []string
		want string
	}{
		{[]string{"explain", "--proxy", "web-0.shop", "x"}, "the proxy has no resource"},
		{[]string{"ps", "nobody.shop"}, `proxy "nobody.shop" is not connected to any of the 3 replicas (context x, namespace istio-system, labels app=istiod)`},
		{[]string{"ps", "web-0"}, ""},
		{[]string{"ps", "deploy/none", "-n", "shop"}, "deploy/none in namespace shop: the API server answered 404"},
		{[]string{"ps", "job/web"}, "job/web: want NAME, NAME.NAMESPACE, pod/NAME, or a workload as deploy/NAME"},
		{[]string{"pc", "c", "nobody"}, `no proxy "nobody" is connected to any of the 3 replicas (context x`},
		{[]string{"ps", "--context", "y"}, `context "y" does not exist`},
		{[]string{"ps", "--kubeconfig", "/nowhere"}, "--kubeconfig: stat /nowhere"},
		{[]string{"ps", "--server", "127.0.0.1:1"}, "cannot reach navarchd's debug pages at 127.0.0.1:1 (--server)"},
		{[]string{"explain", "--config-dir", "x", "--context", "x", "--proxy", "x", "x"}, "--config-dir excludes --server, --kubeconfig and --context"},
		{[]string{"pc", "c", "--context", "x", "--envoy", "x"}, "if any flags in the group [context envoy] are set none of the others can be"},
	} {
		_, _, err := ran(one.args...)
		if (err == nil) != (one.want == "") || err != nil && !strings.Contains(err.Error(), one.want) {
			t.Errorf("%v: %v, want %q", one.args, err, one.want)
		}
	}
}

// Without a kubeconfig explain uses the common default address. A file as the proxy requires a folder.
func TestExplainWithoutAKubeconfig(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	if (&cluster.Flags{}).Given() {
		t.Skip("the user who runs this test has a kubeconfig")
	}
	_, _, err := ran("explain", "--proxy", "nobody.shop", "x")
	if err == nil || !strings.Contains(err.Error(), defaultServer) {
		t.Errorf("%v, want one that names %s", err, defaultServer)
	}
	if _, _, err = ran("explain", "--proxy", "node.json", "x"); err == nil || !strings.Contains(err.Error(), "--config-dir") {
		t.Errorf("a file, and no folder: %v", err)
	}
}

// Names of contexts and of proxies are completed.
func TestCompletionInACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", replicas(t))
	for _, one := range [][]string{{"x", "__complete", "ps", "--context", ""}, {"x", "__complete", "tag", "list", "--context", ""}, {"db-0.shop", "__complete", "pc", "c", "d"}} {
		if out, _, err := ran(one[1:]...); err != nil || !strings.HasPrefix(out, one[0]+"\n") {
			t.Errorf("%v: %v\n%s", one[1:], err, out)
		}
	}
}

// For an unknown proxy all replicas answer so, and one sentence names the searched places.
func TestNobodyHasTheProxy(t *testing.T) {
	t.Setenv("KUBECONFIG", replicas(t))
	_, _, err := ran("pc", "c", "nobody.shop")
	if err == nil || !strings.Contains(err.Error(), "nobody listens on 15014 of gone") { // it may be there
		t.Errorf("one replica does not answer, and may have it: %v", err)
	}
}

// The message about a missing answer or a missing kubeconfig fits the command: it names the roles that the command
// queries, and the places that were searched.
func TestNobodyAnswers(t *testing.T) {
	const xds = "with role xds"
	for _, command := range []string{"leader", "problems", "log", "proxy-status"} {
		_, _, err := ran(command, "--server", "127.0.0.1:1")
		if err == nil || strings.Contains(err.Error(), xds) != (command == "proxy-status") {
			t.Errorf("%s: %v", command, err)
		}
	}
	missing := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", missing)
	if _, _, err := ran("leader"); err == nil || !strings.Contains(err.Error(), "--kubeconfig: no file at "+missing) {
		t.Errorf("%v, want one that names %s", err, missing)
	}
	t.Setenv("KUBECONFIG", "")
	if (&cluster.Flags{}).Given() {
		t.Skip("the user who runs this test has a kubeconfig")
	}
	// Default addresses of this machine may have a listener, but port 1 never has.
	_, _, err := ran("log", "--ctrlz-port", "1")
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1 (the default of --server, since no kubeconfig is at "+clientcmd.RecommendedHomeFile+")") {
		t.Error(err)
	}
}

// The versions at several addresses are printed with the address of each.
func TestVersionsOfSeveral(t *testing.T) {
	var addresses []string
	for _, version := range []string{"1.0", "1.1"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"version": %q}`, version)
		}))
		defer server.Close()
		addresses = append(addresses, server.Listener.Addr().String())
	}
	out, _, err := ran("version", "--short", "--server", strings.Join(addresses, ","))
	if err != nil || !strings.Contains(out, addresses[0]+": 1.0\n"+addresses[1]+": 1.1\n") {
		t.Errorf("%v: %s", err, out)
	}
	if out, _, err = ran("version", "--short", "--server", addresses[1]); err != nil || !strings.Contains(out, "server: 1.1\n") {
		t.Errorf("%v: %s", err, out)
	}
}

// The help of navarchctl log describes the values of its flags.
func TestHelpOfLog(t *testing.T) {
	out, _, err := ran("log", "--help")
	for _, want := range []string{"Address of --ctrlz-addr of navarchd", "without a kubeconfig 127.0.0.1:9876", "error, fatal, none"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("it does not say %q: %v\n%s", want, err, out)
		}
	}
}
