package tags

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/apiserver/apiservertest"
)

// server has webhook configurations, as an API server does: one that is replaced must be the newest.
type server struct {
	there map[string]json.RawMessage // by path
	did   []string
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := r.URL.Path
	var meta struct {
		Metadata struct{ Name, ResourceVersion string }
	}
	_ = json.Unmarshal(body, &meta)
	no := func(code int, why string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"reason": %q, "message": %q}`, why, path)
	}
	switch r.Method {
	case http.MethodPost:
		if path += "/" + meta.Metadata.Name; s.there[path] != nil {
			no(http.StatusConflict, "AlreadyExists")
			return
		}
		s.there[path] = body
	case http.MethodPut:
		if s.there[path] == nil || meta.Metadata.ResourceVersion != "7" {
			no(http.StatusConflict, "Conflict")
			return
		}
		s.there[path] = body
	case http.MethodDelete:
		if s.there[path] == nil {
			no(http.StatusNotFound, "NotFound")
			return
		}
		delete(s.there, path)
	default:
		if one := s.there[path]; one != nil {
			_, _ = w.Write(one)
			return
		}
		var items []string
		for at, one := range s.there {
			if strings.HasPrefix(at, path+"/") {
				items = append(items, string(one))
			}
		}
		if items == nil && strings.Contains(path, "default-validator") {
			no(http.StatusNotFound, "NotFound")
			return
		}
		slices.Sort(items)
		fmt.Fprintf(w, `{"items": [%s]}`, strings.Join(items, ","))
		return
	}
	s.did = append(s.did, r.Method+" "+path[strings.LastIndex(path, "/")+1:])
	fmt.Fprint(w, "{}")
}

func (s *server) put(t *testing.T, path string, one any) {
	t.Helper()
	raw, err := json.Marshal(one)
	if err != nil {
		t.Fatal(err)
	}
	s.there[path] = raw
}

// revisions starts a server with the webhook configurations of the revisions default and canary, with roots that the
// leader wrote, and with namespaces.
func revisions(t *testing.T) (*server, Tags) {
	t.Helper()
	s := &server{there: map[string]json.RawMessage{}}
	for _, revision := range []string{"", "canary", "next"} {
		c := inject.Webhooks{Namespace: "istio-system", Revision: revision, CABundle: []byte("roots of " + revision)}.Configuration()
		c.ResourceVersion = "7"
		s.put(t, mutating+"/"+c.Name, c)
	}
	for name, labels := range map[string]string{"a": `"istio.io/rev": "prod"`, "b": `"istio-injection": "enabled", "istio.io/rev": "prod"`, "c": `"istio-injection": "disabled"`} {
		s.there["/api/v1/namespaces/"+name] = json.RawMessage(fmt.Sprintf(`{"metadata": {"name": %q, "labels": {%s}}}`, name, labels))
	}
	return s, Tags{API: apiservertest.Play(t, s.serve), Namespace: "istio-system"}
}

func (s *server) configuration(t *testing.T, name string) (c admissionregistrationv1.MutatingWebhookConfiguration) {
	t.Helper()
	if err := json.Unmarshal(s.there[mutating+"/"+name], &c); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return c
}

// A tag gets the webhook of its revision, with its roots, and its own selectors. With overwrite it is set to another
// revision, and then has that one's webhook.
func TestSet(t *testing.T) {
	s, tags := revisions(t)
	set := func(tag, revision string, overwrite bool) error {
		change, err := tags.Set(t.Context(), tag, revision, overwrite)
		if err == nil {
			err = tags.Apply(t.Context(), change)
		}
		return err
	}
	if err := set("prod", "canary", false); err != nil {
		t.Fatal(err)
	}
	c := s.configuration(t, "istio-revision-tag-prod")
	if c.Labels["istio.io/rev"] != "canary" || c.Labels["istio.io/tag"] != "prod" || len(c.Webhooks) != 2 {
		t.Errorf("labels %v, %d webhooks", c.Labels, len(c.Webhooks))
	}
	for _, w := range c.Webhooks {
		if w.ClientConfig.Service.Name != "istiod-canary" || string(w.ClientConfig.CABundle) != "roots of canary" {
			t.Errorf("%s leads to %+v", w.Name, w.ClientConfig)
		}
		yes, _ := inject.Selects(&w, map[string]string{"istio.io/rev": "prod"}, nil)
		other, _ := inject.Selects(&w, map[string]string{"istio.io/rev": "canary"}, nil)
		if yes != strings.HasPrefix(w.Name, "rev.namespace.") || other {
			t.Errorf("%s selects %v %v", w.Name, yes, other)
		}
	}
	if err := set("prod", "next", false); err == nil || !strings.Contains(err.Error(), "tag prod stands for revision canary (--overwrite") {
		t.Errorf("another revision: %v", err)
	}
	stored := s.configuration(t, "istio-revision-tag-prod")
	stored.ResourceVersion, stored.Labels["app.kubernetes.io/managed-by"] = "7", "Helm"
	s.put(t, mutating+"/istio-revision-tag-prod", stored)
	if err := set("prod", "next", true); err != nil {
		t.Fatal(err)
	}
	if c := s.configuration(t, "istio-revision-tag-prod"); c.Labels["istio.io/rev"] != "next" || c.Labels["app.kubernetes.io/managed-by"] != "Helm" || string(c.Webhooks[0].ClientConfig.CABundle) != "roots of next" {
		t.Errorf("after: %v", c.Labels)
	}
	for what, err := range map[string]error{
		"has no MutatingWebhookConfiguration": set("prod", "nobody", true),
		"next is a revision":                  set("next", "canary", false),
		`tag "A b": `:                         set("A b", "canary", false),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if want := []string{"POST istio-revision-tag-prod", "PUT istio-revision-tag-prod"}; !slices.Equal(s.did, want) {
		t.Errorf("did %v, want %v", s.did, want)
	}
}

// The tag default replaces the default revision: that revision's configuration no longer selects anything, and the
// default validator leads to the tag's revision.
func TestSetDefault(t *testing.T) {
	s, tags := revisions(t)
	s.there[validating+"/"+defaultValidator] = json.RawMessage(`{"metadata": {"name": "istiod-default-validator", "resourceVersion": "7", "labels": {"istio.io/rev": "default"}},
		"webhooks": [{"name": "validation.istio.io", "clientConfig": {"caBundle": "b2xk", "service": {"namespace": "istio-system", "name": "istiod", "path": "/validate"}}}]}`)
	change, err := tags.Set(t.Context(), "default", "canary", false)
	if err == nil {
		err = tags.Apply(t.Context(), change)
	}
	if err != nil {
		t.Fatal(err)
	}
	pod := map[string]string{"istio-injection": "enabled"}
	asked := 0
	for _, name := range []string{"istio-revision-tag-default", "istio-sidecar-injector"} {
		for _, w := range s.configuration(t, name).Webhooks {
			if yes, _ := inject.Selects(&w, pod, nil); yes {
				asked++
				if name != "istio-revision-tag-default" {
					t.Errorf("%s selects still", name)
				}
			}
		}
	}
	if asked != 1 {
		t.Errorf("%d webhooks select a namespace with istio-injection", asked)
	}
	var v admissionregistrationv1.ValidatingWebhookConfiguration
	if err := json.Unmarshal(s.there[validating+"/"+defaultValidator], &v); err != nil {
		t.Fatal(err)
	}
	if c := v.Webhooks[0].ClientConfig; c.Service.Name != "istiod-canary" || *c.Service.Path != "/validate" || string(c.CABundle) != "roots of canary" || v.Labels["istio.io/rev"] != "canary" {
		t.Errorf("the default validator: %+v %v", c, v.Labels)
	}
}

// The tag default may name the default revision itself: then one of the two configurations still selects.
func TestSetDefaultToItself(t *testing.T) {
	s, tags := revisions(t)
	change, err := tags.Set(t.Context(), "default", "default", false)
	if err == nil {
		err = tags.Apply(t.Context(), change)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"istio-revision-tag-default": true, "istio-sidecar-injector": false} {
		asked := false
		for _, w := range s.configuration(t, name).Webhooks {
			yes, _ := inject.Selects(&w, map[string]string{"istio-injection": "enabled"}, nil)
			asked = asked || yes
		}
		if asked != want {
			t.Errorf("%s selects: %v", name, asked)
		}
	}
}

func TestListAndRemove(t *testing.T) {
	s, tags := revisions(t)
	for _, tag := range []string{"prod", "old"} {
		change, err := tags.Set(t.Context(), tag, "canary", false)
		if err == nil {
			err = tags.Apply(t.Context(), change)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := tags.List(t.Context())
	if err != nil || fmt.Sprint(all) != "[{old canary [] istio-revision-tag-old} {prod canary [a] istio-revision-tag-prod}]" { // of b istio-injection counts
		t.Errorf("%v %v", all, err)
	}
	change, err := tags.Remove(t.Context(), "prod")
	if err == nil {
		err = tags.Apply(t.Context(), change)
	}
	if err != nil || s.there[mutating+"/istio-revision-tag-prod"] != nil || s.there[mutating+"/istio-revision-tag-old"] == nil || s.there[mutating+"/istio-sidecar-injector-canary"] == nil {
		t.Errorf("after: %v", err)
	}
	for _, name := range []string{"prod", "canary"} { // a revision is no tag
		if _, err := tags.Remove(t.Context(), name); err == nil || !strings.Contains(err.Error(), "there is no tag "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
