package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/apiserver/apiservertest"
)

// planner is a replica that answers previews with a report.
type planner struct {
	report  preview.Report
	missing []fleetapi.Missing
	asked   []string // queries and bodies
}

// ServeHTTP answers /api/v1/plan.
func (p *planner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.asked = append(p.asked, r.URL.RawQuery+" "+string(body))
	_ = json.NewEncoder(w).Encode(fleetapi.Answer[*preview.Report]{Schema: fleetapi.Schema, Partial: p.missing,
		Items: []*preview.Report{&p.report}})
}

// writableCluster is an API server with VirtualServices, which records what is written.
func writableCluster(t *testing.T, written *[]string) string {
	return apiservertest.Kubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/apis/networking.istio.io":
			fmt.Fprint(w, `{"preferredVersion": {"version": "v1"}}`)
		case r.URL.Path == "/apis/networking.istio.io/v1":
			fmt.Fprint(w, `{"resources": [{"name": "virtualservices", "kind": "VirtualService", "namespaced": true}]}`)
		case strings.HasSuffix(r.URL.Path, "/virtualservices"):
			fmt.Fprint(w, `{"apiVersion": "networking.istio.io/v1",
				"items": [{"metadata": {"name": "old", "namespace": "shop", "labels": {"team": "a"}}}]}`)
		case r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/gone"):
			http.NotFound(w, r)
		case r.Method == http.MethodPatch || r.Method == http.MethodDelete:
			*written = append(*written, r.Method+" "+r.URL.Path)
			fmt.Fprint(w, `{"metadata": {"generation": 3}}`)
		default:
			http.NotFound(w, r)
		}
	})
}

// A saved plan is applied as it was planned: its objects are applied, and those that it deletes are deleted. It is
// refused, with an exit code of its own, once an object of it or one behind what changes has changed.
// Promise: plan.md#apply-what-was-planned
func TestSavedPlan(t *testing.T) {
	replica := &planner{}
	web := httptest.NewServer(replica)
	defer web.Close()
	var written []string
	kubeconfig := writableCluster(t, &written)
	source, file := filepath.Join(t.TempDir(), "new.yaml"), filepath.Join(t.TempDir(), "plan.json")
	object := "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: web, namespace: shop}, " +
		"spec: {hosts: [\"a\\n---\\nb\"]}}"
	if err := errors.Join(os.WriteFile(source, []byte(object), 0o600), os.WriteFile(file, []byte("old"), 0o644)); err != nil {
		t.Fatal(err)
	}
	touched := preview.Touched{Object: "Service shop/web", Hash: "1"}
	was := preview.Report{Schema: preview.Schema, Revision: 7, Proxies: 1, Touched: []preview.Touched{touched},
		Objects: []preview.Reported{{Object: "VirtualService shop/web", Act: preview.Created}}}
	replica.report = was
	_, next, err := ran("plan", "-f", source, "--prune", "team=a", "--scope", "namespace shop", "--proxies", "--out", file,
		"--server", web.URL, "--kubeconfig", kubeconfig)
	if err != nil || !strings.Contains(next, "next: navarchctl apply --plan "+file) {
		t.Fatalf("%v\n%s", err, next)
	}
	if !strings.HasPrefix(replica.asked[0], "proxies=true&removed=1&scope=namespace+shop ") {
		t.Errorf("asked %q", replica.asked)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	apply := func(args ...string) (string, string, error) {
		replica.asked, written = nil, nil
		return ran(append([]string{"apply", "--plan", file, "--server", web.URL, "--kubeconfig", kubeconfig}, args...)...)
	}
	out, _, err := apply()
	const both = "PATCH /apis/networking.istio.io/v1/namespaces/shop/virtualservices/web " +
		"DELETE /apis/networking.istio.io/v1/namespaces/shop/virtualservices/old"
	if err != nil || strings.Join(written, " ") != both || !strings.Contains(out, "VirtualService shop/old deleted") {
		t.Errorf("%v, wrote %q\n%s", err, written, out)
	}
	if !strings.HasPrefix(replica.asked[0], "removed=1&scope=namespace+shop ") || !strings.Contains(replica.asked[0], `a\n---\nb`) {
		t.Errorf("asked %q", replica.asked)
	}
	for name, c := range map[string]struct {
		change func(r *preview.Report)
		want   string
	}{
		"a touched object": {func(r *preview.Report) {
			r.Touched = []preview.Touched{{Object: "Service shop/web", Hash: "2"}}
		}, "Service shop/web has changed"},
		"an object of the plan": {func(r *preview.Report) {
			r.Objects = []preview.Reported{{Object: "VirtualService shop/web", Hash: "1"}}
		}, "VirtualService shop/web has been created"},
		"a new object": {func(r *preview.Report) {
			r.Touched = append(slices.Clone(r.Touched), preview.Touched{Object: "VirtualService shop/b", Hash: "1"})
		}, "VirtualService shop/b is new behind what changes"},
	} {
		replica.report = was
		replica.report.Revision = 9
		c.change(&replica.report)
		_, _, err := apply()
		var exit exitError
		if !errors.As(err, &exit) || exit.code != exitStale || len(written) > 0 ||
			!strings.Contains(exit.text, "the plan of revision 7 no longer holds at revision 9: "+c.want) {
			t.Errorf("%s: %v, wrote %q", name, err, written)
		}
	}
	replica.report, replica.missing = was, []fleetapi.Missing{{Replica: "b", Reason: "no answer"}}
	if _, warnings, err := apply(); err != nil || !strings.Contains(warnings, "not all objects behind what changes could be compared") {
		t.Errorf("%v %s", err, warnings)
	}
	replica.missing = nil
	refused := func(want string) {
		t.Helper()
		if _, _, err := apply(); err == nil || len(written) > 0 || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, wrote %q", err, written)
		}
	}
	replica.report.Objects = []preview.Reported{{Object: "VirtualService shop/web", Act: preview.Refused,
		Problems: []preview.Found{{Field: "spec", Message: "bad"}}}}
	refused("is refused now, so nothing is applied: VirtualService shop/web spec: bad")
	web.Close()
	refused("the plan cannot be compared, so nothing is applied")
}

// Files that are no saved plans, and flags that exclude each other, are refused.
func TestSavedPlanIsRefused(t *testing.T) {
	var written []string
	kubeconfig := writableCluster(t, &written)
	dir := t.TempDir()
	file, link := filepath.Join(dir, "plan.json"), filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := save(link, "", change{}, &preview.Report{}); err == nil || !strings.Contains(err.Error(), "link is no regular file") {
		t.Errorf("to a link: %v", err)
	}
	for text, want := range map[string]string{
		`{"schema": "navarch.io/plan/v1"}`: "it is not a file of navarchctl plan --out",
		`kind: X`:                          "it is not a file of navarchctl plan --out",
		`{"schema": "navarch.io/saved-plan/v1", "report": {}}`:                           "it has no objects",
		`{"schema": "navarch.io/saved-plan/v1", "report": {}, "objects": [{"kind": 1}]}`: "objects#1",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ran("apply", "--plan", file, "--kubeconfig", kubeconfig); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"apply --plan x -f y", "if any flags in the group [filename plan] are set none of the others can be"},
		{"apply", "at least one of the flags in the group [filename plan] is required"},
		{"plan -f x --config-dir " + dir + " --out " + file, "--out saves a plan for navarchctl apply"},
		{"plan -f x --scope shop", `--scope "shop": want mesh`},
	} {
		if _, _, err := ran(strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}
