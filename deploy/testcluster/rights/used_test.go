//go:build rights

package rights

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"navarch.io/navarch/deploy/docs"
	"navarch.io/navarch/deploy/testcluster/controlplane"
)

// neverAsked are rights that no request uses by their names.
var neverAsked = map[string]string{
	"approve certificates.k8s.io/signers/": "an API server asks for it when a request is approved",
}

// Each documented right was used by a test against an API server (`make test-kube`, which runs this test after the
// others), so that installers grant no useless right.
func TestRightsAreUsed(t *testing.T) {
	tools, err := controlplane.Tools()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(controlplane.Used(tools), "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no test has noted what it used: %v", err)
	}
	used := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			used[strings.TrimSpace(line)] = true
		}
	}
	for _, after := range []string{"\n## Rights\n", ToSecrets, OfSigners} {
		for _, right := range documented(t, docs.YAML(t, page, after)) {
			if neverAsked[right] == "" && !uses(used, right) {
				t.Errorf("no test uses %s", right)
			}
		}
	}
}

// documented returns the rights of the roles in a text, one for each verb and resource.
func documented(t *testing.T, text string) (all []string) {
	t.Helper()
	reader := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var role rbacv1.ClusterRole // a Role has the same rules
		if err := reader.Decode(&role); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, url := range rule.NonResourceURLs {
					all = append(all, verb+" "+url)
				}
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						resource, sub, _ := strings.Cut(resource, "/")
						all = append(all, verb+" "+group+"/"+resource+"/"+sub)
					}
				}
			}
		}
	}
}

// uses reports whether a right was used. A watch begins with a list, unless the server sends the list itself
// (WatchList).
func uses(used map[string]bool, right string) bool {
	verbs := []string{right}
	if rest, is := strings.CutPrefix(right, "list "); is {
		verbs = append(verbs, "watch "+rest)
	}
	for _, right := range verbs {
		if used[right] {
			return true
		}
		before, after, any := strings.Cut(right, "*")
		for one := range used {
			if any && strings.HasPrefix(one, before) && strings.HasSuffix(one, after) {
				return true
			}
		}
	}
	return false
}
