package normal

import (
	"slices"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// role returns a Role with these rules, parsed.
func role(t *testing.T, kind, rules string) (object.ID, *Role) {
	t.Helper()
	obj := read(t, "apiVersion: rbac.authorization.k8s.io/v1\nkind: "+kind+"\nmetadata: {name: r, namespace: shop}\nrules: "+rules)
	if kind == "ClusterRole" {
		obj.ID.Namespace = ""
	}
	r, problems := ParseRole(obj)
	wantProblems(t, problems)
	return obj.ID, r
}

func TestRoles(t *testing.T) {
	for rules, want := range map[string]bool{
		"[{apiGroups: [''], resources: [secrets], verbs: [get, watch, list]}]":         true,
		"[{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]":                         true,
		"[{apiGroups: [apps, ''], resources: [pods, secrets], verbs: [list]}]":         true,
		"[{verbs: [get]}, {apiGroups: [''], resources: [secrets], verbs: [list]}]":     true,
		"[{apiGroups: [''], resources: [secrets], verbs: [get, watch]}]":               false,
		"[{apiGroups: [''], resources: [secrets/x, pods], verbs: [list]}]":             false,
		"[{apiGroups: [apps], resources: [secrets], verbs: [list]}]":                   false,
		"[{apiGroups: [''], resources: [secrets], verbs: [list], resourceNames: [a]}]": false,
		"[{nonResourceURLs: ['*'], verbs: ['*']}]":                                     false,
		"null": false,
	} {
		if _, r := role(t, "Role", rules); r.ListsSecrets != want {
			t.Errorf("%s lists Secrets: %v", rules, r.ListsSecrets)
		}
	}
	obj := read(t, "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r, namespace: shop}\nrules: x")
	if r, problems := ParseRole(obj); r != nil || len(problems) != 1 || problems[0].Severity == problem.Warning {
		t.Errorf("rules that are none: %v %v", r, problems)
	}
	if !(*Role)(nil).Equal(nil) || (&Role{}).Equal(nil) || (*Role)(nil).Equal(&Role{}) || !(&Role{true}).Equal(&Role{true}) || (&Role{true}).Equal(&Role{}) {
		t.Error("Equal")
	}
}

func TestBindings(t *testing.T) {
	const lists = "[{apiGroups: [''], resources: [secrets], verbs: [list]}]"
	lookup := &fake{roles: map[object.ID]*Role{}}
	for _, kind := range []string{"Role", "ClusterRole"} {
		id, r := role(t, kind, lists)
		lookup.roles[id] = r
	}
	lookup.roles[object.ID{Group: model.GroupRBAC, Kind: "ClusterRole", Name: "weak"}] = &Role{}
	for _, c := range []struct {
		kind, ref, subjects string
		want                []string
		problems            []string
	}{
		{"RoleBinding", "kind: Role, name: r", "[{kind: ServiceAccount, name: gw, namespace: shop}, {kind: ServiceAccount, name: a, namespace: infra}]", []string{"infra/a", "shop/gw"}, nil},
		{"RoleBinding", "kind: ClusterRole, name: r", "[{kind: ServiceAccount, name: gw, namespace: shop}]", []string{"shop/gw"}, nil},
		{"ClusterRoleBinding", "kind: ClusterRole, name: r", "[{kind: User, name: 'system:serviceaccount:shop:gw'}]", []string{"shop/gw"}, nil},
		{"RoleBinding", "kind: Role, name: r", "[{kind: Group, name: 'system:serviceaccounts:shop'}]", []string{"shop/*"}, nil},
		{"RoleBinding", "kind: Role, name: r", "[{kind: Group, name: 'system:serviceaccounts'}, {kind: Group, name: 'system:authenticated'}]", []string{"*/*"}, nil},

		{"RoleBinding", "kind: ClusterRole, name: weak", "[{kind: ServiceAccount, name: gw, namespace: shop}]", nil, nil},
		{"RoleBinding", "kind: Role, name: elsewhere", "[{kind: ServiceAccount, name: gw, namespace: shop}]", nil, nil},
		{"ClusterRoleBinding", "kind: Role, name: r", "[{kind: ServiceAccount, name: gw, namespace: shop}]", nil, []string{`roleRef.kind: "Role": want ClusterRole`}},
		{"RoleBinding", "kind: Roll, name: r", "[]", nil, []string{`roleRef.kind: "Roll": want ClusterRole`}},
		{"RoleBinding", "kind: Role, name: r", "{}", nil, []string{"subjects: json"}},
		{"RoleBinding", "kind: Role, name: r", "[{kind: User, name: gw}, {kind: Group, name: admins}, {kind: Account, name: gw, namespace: shop}]", nil, nil},
		// An invalid name must not match more than one account.
		{"RoleBinding", "kind: Role, name: r", "[{kind: ServiceAccount, name: '*', namespace: shop}, {kind: ServiceAccount, name: '*', namespace: '*'}, {kind: ServiceAccount, name: gw}]", nil, nil},
		{"RoleBinding", "kind: Role, name: r", "[{kind: ServiceAccount, namespace: shop}, {kind: User, name: 'system:serviceaccount:*:*'}, {kind: User, name: 'system:serviceaccount:shop/gw'}, {kind: Group, name: 'system:serviceaccounts:*'}, {kind: Group, name: 'system:serviceaccounts:'}]", nil, nil},
	} {
		obj := read(t, "apiVersion: rbac.authorization.k8s.io/v1\nkind: "+c.kind+"\nmetadata: {name: b, namespace: shop}\nroleRef: {apiGroup: rbac.authorization.k8s.io, "+c.ref+"}\nsubjects: "+c.subjects)
		if c.kind == "ClusterRoleBinding" {
			obj.ID.Namespace = ""
		}
		result := testNormal.Object(obj, lookup)
		wantProblems(t, result.Problems, c.problems...)
		var got []string
		for _, r := range result.Records {
			got = append(got, r.(*model.SecretReader).Spec.GetAccounts()...)
			if SourceObject(r.Meta().Key) != obj.ID {
				t.Errorf("%v is of %v", r.Meta().Key, SourceObject(r.Meta().Key))
			}
		}
		if !slices.Equal(got, c.want) || len(result.Problems) == 0 && len(result.Refs) != 1 {
			t.Errorf("%s of %s to %s: %q, want %q; refs %v", c.kind, c.ref, c.subjects, got, c.want, result.Refs)
		}
	}
}
