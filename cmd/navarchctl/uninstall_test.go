package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"navarch.io/navarch/store/apiserver/apiservertest"
)

// uninstalled runs a command against a cluster with a webhook, a CA's Secret, and two definitions, one of which has an
// object. With running, the control plane's Deployment exists too. It returns the deleted objects, in order.
func uninstalled(t *testing.T, running bool, stdin string, args ...string) (deleted, out string, err error) {
	t.Helper()
	const crds, served = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/", `{"metadata": {"uid": "3"}, "spec": {"versions": [{"name": "v1", "served": true}]}}`
	lists := map[string]string{
		"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": `{"items": [{"metadata": {"name": "istio-sidecar-injector", "uid": "1", "labels": {"istio.io/rev": "default", "app.kubernetes.io/name": "navarch"}},
			"webhooks": [{"clientConfig": {"service": {"namespace": "istio-system", "name": "istiod"}}}]}]}`,
		"/api/v1/namespaces/istio-system/secrets":      `{"items": [{"metadata": {"namespace": "istio-system", "name": "cacerts", "uid": "2"}}]}`,
		crds + "sidecars.networking.istio.io":          served,
		crds + "virtualservices.networking.istio.io":   served,
		"/apis/networking.istio.io/v1/virtualservices": `{"items": [{"metadata": {"name": "a"}}]}`,
	}
	if running {
		lists["/apis/apps/v1/namespaces/istio-system/deployments"] = `{"items": [{"metadata": {"name": "istiod", "labels": {"app.kubernetes.io/instance": "mesh"}}, "spec": {"template": {"metadata": {"labels": {"app": "istiod"}}}}}]}`
	}
	var gone []string
	kubeconfig := apiservertest.Kubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			gone = append(gone, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
		}
		if list := lists[r.URL.Path]; list != "" {
			fmt.Fprint(w, list)
			return
		}
		if strings.HasPrefix(r.URL.Path, crds) && r.Method == http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, `{"items": []}`)
	})
	var stdout bytes.Buffer
	cmd := root()
	cmd.SetArgs(append([]string{"uninstall", "--kubeconfig", kubeconfig}, args...))
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&stdout)
	cmd.SetErr(&bytes.Buffer{})
	err = cmd.Execute()
	return strings.Join(gone, " "), stdout.String(), err
}

// Only confirmed objects are deleted: webhooks first, kept objects only with --purge while nothing runs, and
// definitions with objects only by name.
func TestUninstall(t *testing.T) {
	const yes = "istio-system\n"
	for name, one := range map[string]struct {
		running       bool
		stdin         string
		args          []string
		deleted, want string // of the output, or of the error
	}{
		"not confirmed":           {true, "yes\n", nil, "", "not confirmed: nothing was changed"},
		"nobody answers":          {true, "", nil, "", "not confirmed"},
		"webhooks":                {true, yes, nil, "istio-sidecar-injector", "Kept when the chart is uninstalled"},
		"purge while it runs":     {true, yes, []string{"--purge"}, "", "the control plane runs still: Deployment istiod (release mesh)"},
		"purge":                   {false, yes, []string{"--purge"}, "istio-sidecar-injector cacerts", "Kept:"},
		"purge, not asked":        {false, "", []string{"--purge", "--yes", "--crds"}, "istio-sidecar-injector cacerts sidecars.networking.istio.io", "1 objects"},
		"purge, with objects":     {false, yes, []string{"--purge", "--crd", "virtualservices.networking.istio.io"}, "istio-sidecar-injector cacerts virtualservices.networking.istio.io", "Deleted for good:"},
		"no such definition":      {false, yes, []string{"--purge", "--crd", "nodes"}, "", "--crd nodes: there is no such definition"},
		"crds without purge":      {true, yes, []string{"--crds"}, "", "--crds and --crd are for --purge"},
		"another revision's":      {true, yes, []string{"--revision", "canary"}, "", "There is nothing to delete."},
		"purge and a revision of": {true, yes, []string{"--revision", "canary", "--purge"}, "", "none of the others can be"},
	} {
		deleted, out, err := uninstalled(t, one.running, one.stdin, one.args...)
		if deleted != one.deleted || !strings.Contains(out+fmt.Sprint(err), one.want) {
			t.Errorf("%s: deleted %q, want %q; %v\n%s", name, deleted, one.deleted, err, out)
		}
	}
}
