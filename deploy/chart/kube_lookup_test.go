//go:build kube

package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/apiserver/apiservertest"
)

// kinds returns the kinds that the API server of against serves, by the path of their group's version. They include all
// kinds that the chart creates or looks up.
func kinds(t *testing.T) map[string][]map[string]any {
	t.Helper()
	all, seen := map[string][]map[string]any{}, map[string]bool{}
	add := func(version, kind string, namespaced bool) {
		path := "/apis/" + version
		if version == "v1" {
			path = "/api/v1"
		}
		if name := strings.TrimSuffix(strings.ToLower(kind), "y"); !seen[path+kind] {
			seen[path+kind] = true
			name += map[bool]string{true: "ies", false: "s"}[strings.HasSuffix(kind, "y")]
			all[path] = append(all[path], map[string]any{"name": name, "namespaced": namespaced, "kind": kind, "verbs": []string{"get"}})
		}
	}
	add("apiextensions.k8s.io/v1", "CustomResourceDefinition", false)
	add("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", false)
	for _, text := range scenes(t) {
		for _, u := range objects(t, text) {
			add(u.GetAPIVersion(), u.GetKind(), u.GetNamespace() != "")
		}
	}
	return all
}

// against returns the rendered chart of an upgrade in a cluster with some objects and the key encryption key.
func against(t *testing.T, has map[string]string, args ...string) (string, error) {
	t.Helper()
	has = maps.Clone(has)
	if has == nil {
		has = map[string]string{}
	}
	if _, there := has[secretAt("navarch-kek")]; !there {
		has[secretAt("navarch-kek")] = "{apiVersion: v1, kind: Secret, metadata: {name: navarch-kek, namespace: istio-system}, immutable: true, data: {kek.key: Zmlyc3Q=}}"
	}
	h := played(t, has)
	return h.Run(t.Context(), append([]string{"template", "navarch", h.Dir, "-n", "istio-system", "--dry-run=server", "--is-upgrade", "--disable-openapi-validation"}, args...)...)
}

// played returns Helm for a cluster with some objects, in YAML, by their paths in the API server. Templates look them
// up.
func played(t *testing.T, has map[string]string) *Helm {
	t.Helper()
	kinds := kinds(t)
	kubeconfig := apiservertest.Kubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound}
		path := strings.TrimSuffix(r.URL.Path, "/")
		if text, there := has[path]; there {
			answer = nil
			if err := yaml.Unmarshal([]byte(text), &answer); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		} else if served, there := kinds[path]; there {
			answer = map[string]any{"kind": "APIResourceList", "groupVersion": strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/"), "resources": served}
		} else if path == "/version" {
			answer = map[string]any{"major": "1", "minor": "36", "gitVersion": "v1.36.0"}
		} else if path == "/api" {
			answer = map[string]any{"kind": "APIVersions", "versions": []string{"v1"}}
		} else if path == "/apis" {
			var groups []map[string]any
			for path := range kinds {
				if name, found := strings.CutPrefix(path, "/apis/"); found {
					group, number, _ := strings.Cut(name, "/")
					version := map[string]any{"groupVersion": name, "version": number}
					groups = append(groups, map[string]any{"name": group, "versions": []any{version}, "preferredVersion": version})
				}
			}
			answer = map[string]any{"kind": "APIGroupList", "groups": groups}
		}
		w.Header().Set("Content-Type", "application/json")
		if answer["code"] != nil {
			w.WriteHeader(http.StatusNotFound)
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	})
	h, err := NewHelm(t.TempDir(), kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// secretAt returns the API path of a Secret in the release's namespace.
func secretAt(name string) string { return "/api/v1/namespaces/istio-system/secrets/" + name }

// The chart keeps the complete content of objects that it creates once, if they exist. It does not create a missing
// part of them, because the existing part could not be decrypted with it.
func TestKubeChartKeepsSecrets(t *testing.T) {
	t.Parallel()
	const kek = "{apiVersion: v1, kind: Secret, metadata: {name: navarch-kek, namespace: istio-system}, data: {kek.key: b2xk, older: b2xkZXI=}}"
	const of = "{apiVersion: v1, kind: Secret, metadata: {namespace: istio-system}, immutable: true, data: {tls.crt: b2xk}}"
	has := map[string]string{secretAt("navarch-kek"): kek, secretAt("navarch-etcd-server"): of, secretAt("navarch-etcd-client"): of}
	text, err := against(t, has)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"navarch-kek": "kek.key=old older=older", "navarch-etcd-server": "tls.crt=old immutable", "navarch-etcd-client": "tls.crt=old immutable"} {
		if got := contents(t, text, name); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
	if _, err := against(t, has, "--set", "kek.key=other"); err == nil || !strings.Contains(err.Error(), "kek.key: Secret istio-system/navarch-kek is there and has no key other, only: kek.key, older") {
		t.Errorf("another key: %v", err)
	}
	delete(has, secretAt("navarch-etcd-client"))
	if _, err := against(t, has); err == nil || !strings.Contains(err.Error(), "navarch-etcd-server and navarch-etcd-client of namespace istio-system are made together") {
		t.Errorf("without a certificate of clients: %v", err)
	}
	// Rendering without a cluster creates other keys. The API server does not let them replace the existing ones, and
	// tools do not delete those.
	for _, name := range []string{"navarch-kek", "navarch-etcd-server", "navarch-etcd-client"} {
		secret := &corev1.Secret{}
		object(t, scenes(t)["default"], "Secret", name, secret)
		if secret.Immutable == nil || !*secret.Immutable || secret.Annotations["helm.sh/resource-policy"] != "keep" || secret.Annotations["kustomize.toolkit.fluxcd.io/ssa"] != "IfNotPresent" ||
			!strings.Contains(secret.Annotations["argocd.argoproj.io/sync-options"], "Prune=false") {
			t.Errorf("%s: immutable %v, %v", name, secret.Immutable, secret.Annotations)
		}
	}
}

// The key encryption key is changed in three upgrades: another key is added, and created; the two are exchanged; the
// old one is removed. At each step every process has the keys that the others use. An upgrade does not create a first
// key that is missing.
func TestKubeChartChangesKey(t *testing.T) {
	t.Parallel()
	const second = "{apiVersion: v1, kind: Secret, metadata: {name: second, namespace: istio-system}, immutable: true, data: {kek.key: c2Vjb25k}}"
	has := map[string]string{}
	for i, step := range []struct{ set, flag, secrets string }{
		{"kek.others[0].secretName=second", "file:/etc/navarch/kek/kek.key,/etc/navarch/kek-1/kek.key", "kek=navarch-kek kek-1=second"},
		{"kek.secretName=second,kek.others[0].secretName=navarch-kek", "file:/etc/navarch/kek/kek.key,/etc/navarch/kek-1/kek.key", "kek=second kek-1=navarch-kek"},
		{"kek.secretName=second", "file:/etc/navarch/kek/kek.key", "kek=second"},
	} {
		text, err := against(t, has, "--set", step.set)
		if err != nil {
			t.Fatal(err)
		}
		pod := podsOf(t, text)["Deployment istiod"].Spec
		var secrets []string
		for _, v := range pod.Volumes {
			if strings.HasPrefix(v.Name, "kek") {
				secrets = append(secrets, v.Name+"="+v.Secret.SecretName)
			}
		}
		if got := strings.Join(secrets, " "); got != step.secrets || !slices.Contains(pod.Containers[0].Args, "--kek="+step.flag) {
			t.Errorf("step %d: Secrets %s, %v", i, got, pod.Containers[0].Args)
		}
		if i == 0 {
			if made := contents(t, text, "second"); !strings.HasPrefix(made, "kek.key=") || len(made) != len("kek.key= immutable")+32 {
				t.Errorf("the other key is %q", made)
			}
			if first := contents(t, text, "navarch-kek"); first != "kek.key=first immutable" {
				t.Errorf("the first key is %q", first)
			}
			has[secretAt("second")] = second
		} else if kept := contents(t, text, "second"); kept != "kek.key=second immutable" {
			t.Errorf("step %d: the other key is %q", i, kept)
		}
	}
	if _, err := against(t, has, "--set", "kek.secretName=third"); err == nil || !strings.Contains(err.Error(), "kek.secretName: Secret istio-system/third is not there, and an upgrade makes no other first key") {
		t.Errorf("another first key: %v", err)
	}
	if _, err := against(t, has, "--set", "kek.others[0].secretName=second,kek.others[0].key=b"); err == nil || !strings.Contains(err.Error(), "kek.others: Secret istio-system/second is there and has no key b") {
		t.Errorf("an entry that a Secret has not: %v", err)
	}
}

// contents returns the content of a Secret, and whether it is immutable.
func contents(t *testing.T, text, name string) string {
	t.Helper()
	secret := &corev1.Secret{}
	object(t, text, "Secret", name, secret)
	var all []string
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		all = append(all, key+"="+string(secret.Data[key]))
	}
	if secret.Immutable != nil {
		all = append(all, "immutable")
	}
	return strings.Join(all, " ")
}

// No two webhooks inject the same Pods. A tag with the revision's own name is refused, and so is the tag default while
// the default revision's webhooks select anything. Those stay off, also in upgrades, while another revision has that
// tag.
func TestKubeChartTagDefault(t *testing.T) {
	t.Parallel()
	const at = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	config := func(name, labels, selector string) map[string]string {
		return map[string]string{at: fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfigurationList, items: [{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration,
			metadata: {name: %s, labels: {app: sidecar-injector, %s}}, webhooks: [{name: namespace.sidecar-injector.istio.io, namespaceSelector: %s}]}]}`, name, labels, selector)}
	}
	const off = "{matchLabels: {istio.io/deactivated: never-match}}"
	selects := config("istio-sidecar-injector", "istio.io/rev: default", "{matchLabels: {istio-injection: enabled}}")
	nothing := config("istio-sidecar-injector", "istio.io/rev: default", off)
	tag := config("istio-revision-tag-default", "istio.io/rev: canary, istio.io/tag: default", "{matchLabels: {istio-injection: enabled}}")
	for _, c := range []struct {
		name, set, want string
		has             map[string]string
	}{
		{"its own name", "revisionTags={default}", "revisionTags: default is the name of this revision", nil},
		{"its own name, of another one", "revision=canary,revisionTags={prod,canary}", "revisionTags: canary is the name of this revision", nil},
		{"beside the default revision", "revision=canary,revisionTags={default}", "run `navarchctl tag set default --revision canary`", selects},
		{"beside one that was turned off", "revision=canary,revisionTags={default}", "", nothing},
		{"beside itself", "revision=canary,revisionTags={default}", "", tag},
		{"another tag", "revision=canary,revisionTags={prod}", "", selects},
		{"nobody has it", "revision=canary,revisionTags={default}", "", nil},
	} {
		if _, err := against(t, c.has, "--set", c.set); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	for want, has := range map[string]map[string]string{"never-match": tag, "": selects} {
		text, err := against(t, has)
		if err != nil {
			t.Fatal(err)
		}
		config := &admissionregistrationv1.MutatingWebhookConfiguration{}
		object(t, text, "MutatingWebhookConfiguration", "istio-sidecar-injector", config)
		for _, w := range config.Webhooks {
			if got := w.NamespaceSelector.MatchLabels["istio.io/deactivated"]; got != want || w.ObjectSelector.MatchLabels["istio.io/deactivated"] != want {
				t.Errorf("%s selects by %v and %v", w.Name, w.NamespaceSelector, w.ObjectSelector)
			}
		}
	}
}

// Existing definitions of another owner, such as istiod's, are left out and named, because Helm refuses to adopt
// foreign objects; those of an earlier release of the same name are not.
func TestKubeChartLeavesDefinitions(t *testing.T) {
	t.Parallel()
	const at = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	own := func(name string, release string) string {
		return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %s, labels: {app.kubernetes.io/managed-by: Helm},
			annotations: {meta.helm.sh/release-name: %s, meta.helm.sh/release-namespace: istio-system}}}`, name, release)
	}
	out, err := played(t, map[string]string{
		"/api/v1/namespaces/istio-system/secrets":  "{apiVersion: v1, kind: SecretList, items: []}", // Helm's releases
		at + "virtualservices.networking.istio.io": "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: virtualservices.networking.istio.io}}",
		at + "gateways.networking.istio.io":        own("gateways.networking.istio.io", "base"),
		at + "sidecars.networking.istio.io":        own("sidecars.networking.istio.io", "navarch"),
	}).Run(t.Context(), "install", "navarch", packaged(t), "-n", "istio-system", "--dry-run=server", "--disable-openapi-validation", "--set", "crds.install=true")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"virtualservices", "gateways", "sidecars", "serviceentries"} {
		name += ".networking.istio.io"
		made, said := strings.Contains(out, "\n  name: "+name+"\n"), strings.Contains(out, "\n  "+name+"\n")
		if left := strings.HasPrefix(name, "v") || strings.HasPrefix(name, "g"); made == left || said != left {
			t.Errorf("%s: it is made: %v, it is said that it is left out: %v", name, made, said)
		}
	}
}
