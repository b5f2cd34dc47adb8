package main

import (
	"errors"
	"flag"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// The manifest has only fields of Kubernetes, grants exactly the right to read Pods, and runs this program with
// existing flags.
func TestDaemonSet(t *testing.T) {
	text, err := os.ReadFile("daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	var account corev1.ServiceAccount
	var set appsv1.DaemonSet
	documents := strings.Split(string(text), "\n---\n")
	for i, into := range []any{&account, &role, &binding, &set} {
		if err := yaml.UnmarshalStrict([]byte(documents[i]), into); err != nil {
			t.Fatalf("document %d: %v", i, err)
		}
	}
	if want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}}; len(documents) != 4 || !reflect.DeepEqual(role.Rules, want) {
		t.Errorf("%d documents, rights %v", len(documents), role.Rules)
	}
	pod := set.Spec.Template.Spec
	if s := binding.Subjects[0]; binding.RoleRef.Name != role.Name || s.Name != account.Name || s.Namespace != account.Namespace || pod.ServiceAccountName != account.Name || set.Namespace != account.Namespace {
		t.Errorf("the rights are those of %v", s)
	}
	command := pod.Containers[0].Command
	if err := run(t.Context(), append(command[1:], "--help"), io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("%q: %v", command, err)
	}
}
