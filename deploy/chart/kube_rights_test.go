//go:build kube

package chart

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"navarch.io/navarch/deploy/docs"
)

func execute(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	return string(out), err
}

// rights returns the roles' rights in a text, each as one line, by role. The key is the suffix of a role that the chart
// makes for a role of navarchd, otherwise the whole name.
func rights(t *testing.T, text string) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, u := range objects(t, text) {
		if kind := u.GetKind(); kind != "ClusterRole" && kind != "Role" {
			continue
		}
		role := &rbacv1.ClusterRole{} // its fields are a Role's, too
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, role); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(u.GetName(), "navarchd-"), "-istio-system")
		if all[name] == nil {
			all[name] = map[string]bool{}
		}
		for _, rule := range role.Rules {
			for _, right := range expanded(rule) {
				all[name][u.GetNamespace()+": "+right] = true
			}
		}
	}
	return all
}

// expanded returns the rights of a rule, one by one.
func expanded(rule rbacv1.PolicyRule) (all []string) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, verb := range rule.Verbs {
		for _, url := range rule.NonResourceURLs {
			all = append(all, verb+" "+url)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s.%s %s", verb, resource, group, name)))
				}
			}
		}
	}
	return all
}

func union(of map[string]map[string]bool) map[string]bool {
	all := map[string]bool{}
	for _, one := range of {
		maps.Copy(all, one)
	}
	return all
}

// All roles together have the documented rights, which navarchd is tested with (cmd/internal/e2e), and no other.
func TestKubeChartRights(t *testing.T) {
	t.Parallel()
	want := union(rights(t, docs.YAML(t, "kubernetes.md", "\n## Rights\n")))
	all := rights(t, template(t, "-f", "ci/roles.yaml", "--set-json", "injection.tags=[]")) // the page has the bounded right
	if operator := all["navarch-operator"]; !maps.Equal(operator, map[string]bool{": accept removals.navarch.io": true}) {
		t.Errorf("the account of operators may %v", operator)
	}
	delete(all, "navarch-operator")
	got := union(all)
	for _, right := range slices.Sorted(maps.Keys(want)) {
		if !got[right] {
			t.Errorf("the chart does not give %s", right)
		}
	}
	for _, right := range slices.Sorted(maps.Keys(got)) {
		if !want[right] {
			t.Errorf("the chart gives %s, which is not documented", right)
		}
	}
	if len(want) < 50 {
		t.Errorf("%d rights are documented", len(want))
	}
}

// Only the leader writes, and lists Secrets. Role ca may read the CA's Secrets by name, and the other roles no Secrets.
// Disabled options grant nothing.
// Promise: security-keys.md#the-power-of-each-key
func TestKubeChartRightsOfRoles(t *testing.T) {
	t.Parallel()
	of := rights(t, template(t, "-f", "ci/roles.yaml"))
	delete(of, "navarch-operator")
	for role, all := range of {
		for right := range all {
			switch {
			case role != "ingest" && !strings.Contains(right, ": get ") && !strings.Contains(right, ": list ") && !strings.Contains(right, ": watch ") &&
				!strings.Contains(right, "create subjectaccessreviews.") && !strings.Contains(right, "create tokenreviews."):
				t.Errorf("role %s may %s", role, right)
			case strings.Contains(right, " secrets.") && role != "ingest" && (role != "ca" || !strings.Contains(right, "get secrets. cacerts") && !strings.Contains(right, "get secrets. istio-ca-secret")):
				t.Errorf("role %s may %s", role, right)
			case strings.HasPrefix(right, ": ") && strings.Contains(right, " secrets."):
				t.Errorf("role %s may %s in all namespaces", role, right)
			}
		}
	}
	if roles := slices.Sorted(maps.Keys(of)); !slices.Equal(roles, []string{"admit", "ca", "ingest", "xds"}) {
		t.Errorf("rights of %v", roles)
	}
	off := rights(t, template(t, "--set", "remoteClusters=false,machines=false,automaticAddresses=false"))
	for role, all := range off {
		for right := range all {
			for _, word := range []string{"list secrets.", "workloadentries", "serviceentries", "istio-ip-autoallocate", "/status", "tokenreviews"} {
				if strings.Contains(right, word) && (role != "ingest" || word != "tokenreviews") { // the leader asks whose token accepts a removal
					t.Errorf("with all options off, %s: %s", role, right)
				}
			}
		}
	}
}

// Each service account is bound to the rights of the roles of its own Deployment; rights to Secrets of gateways are the
// leader's.
func TestKubeChartBindings(t *testing.T) {
	t.Parallel()
	got := map[string][]string{}
	for _, u := range objects(t, template(t, "-f", "ci/apart.yaml")) {
		binding := &rbacv1.ClusterRoleBinding{}
		if kind := u.GetKind(); kind != "ClusterRoleBinding" && kind != "RoleBinding" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, binding); err != nil {
			t.Fatal(err)
		}
		for _, s := range binding.Subjects {
			got[s.Name] = append(got[s.Name], strings.TrimSpace(binding.RoleRef.Kind+" "+binding.Namespace)+" "+binding.RoleRef.Name)
		}
	}
	want := map[string][]string{
		"navarch-operator-canary": {"ClusterRole navarch-operator-canary-istio-system"},
		"istiod-canary":           {"ClusterRole navarchd-xds-canary-istio-system"},
		"istiod-canary-ca":        {"ClusterRole navarchd-ca-canary-istio-system", "Role istio-system navarchd-ca-canary"},
		"istiod-canary-admit":     {"ClusterRole navarchd-admit-canary-istio-system", "Role istio-system navarchd-admit-canary"},
		"istiod-canary-ingest":    {"ClusterRole navarchd-ingest-canary-istio-system", "Role istio-ingress navarchd-secrets-canary", "Role istio-system navarchd-ingest-canary"},
	}
	for account := range got {
		slices.Sort(got[account])
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v,\nwant %v", got, want)
	}
}
