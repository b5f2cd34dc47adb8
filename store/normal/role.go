package normal

import (
	"encoding/json"
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// Role is what is read of a Role or ClusterRole: whether it gives the verb list on Secrets, which istiod, too, wants of whoever
// it hands private keys to (istio: pilot/pkg/credentials/kube/secrets.go, Authorize).
type Role struct{ ListsSecrets bool }

// IsRole says whether an object is a Role or a ClusterRole.
func IsRole(id object.ID) bool {
	return id.Group == model.GroupRBAC && (id.Kind == "Role" || id.Kind == "ClusterRole")
}

// Equal says whether two Roles mean the same; nil is a Role that is not there.
func (o *Role) Equal(other *Role) bool {
	return o != nil && other != nil && *o == *other || o == nil && other == nil
}

// ParseRole reads a Role or ClusterRole. A rule for Secrets of certain names lets nobody list Secrets
// (https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources). Roles that are aggregated of others
// have the rules that are written in them. A problem that is no warning means: not usable, what was known stands.
func ParseRole(obj *object.Object) (*Role, []object.Problem) {
	r := &report{id: obj.ID, location: obj.Location}
	var whole struct {
		Rules []struct {
			APIGroups, Resources, ResourceNames, Verbs []string
		} `json:"rules"`
	}
	if err := json.Unmarshal(obj.JSON, &whole); err != nil {
		r.errorf("rules", "%v", err)
		return nil, r.problems
	}
	role := &Role{}
	has := func(list []string, one string) bool { return slices.Contains(list, one) || slices.Contains(list, "*") }
	for _, rule := range whole.Rules {
		if has(rule.APIGroups, "") && has(rule.Resources, "secrets") && has(rule.Verbs, "list") && len(rule.ResourceNames) == 0 {
			role.ListsSecrets = true
		}
	}
	return role, nil
}

// bindingRecords joins a RoleBinding or a ClusterRoleBinding with its role; of one that lets nobody list Secrets there is no record.
func bindingRecords(_ *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	var whole struct {
		RoleRef  struct{ APIGroup, Kind, Name string }
		Subjects []struct{ Kind, Namespace, Name string }
	}
	if err := json.Unmarshal(obj.JSON, &whole); err != nil {
		r.errorf("subjects", "%v", err)
		return nil
	}
	role := obj.ID.SameOrigin(object.ID{Group: model.GroupRBAC, Kind: whole.RoleRef.Kind, Name: whole.RoleRef.Name})
	switch {
	case role.Kind == "Role" && obj.ID.Kind == "RoleBinding":
		role.Namespace = obj.ID.Namespace
	case role.Kind == "ClusterRole":
	default:
		r.errorf("roleRef.kind", "%q: want ClusterRole, or Role in a RoleBinding", role.Kind)
		return nil
	}
	r.ref(role)
	if found := ctx.Role(role); found == nil || !found.ListsSecrets {
		return nil
	}
	spec := &model.SecretReaderSpec{}
	for _, s := range whole.Subjects {
		if account := serviceAccounts(s.Kind, s.Namespace, s.Name); account != "" {
			spec.Accounts = append(spec.Accounts, account)
		}
	}
	if spec.Accounts = sortedSet(spec.Accounts); len(spec.Accounts) == 0 {
		return nil
	}
	return r.record(model.KindSecretReader, obj, obj.ID.Name, spec)
}

// serviceAccounts are those that a subject stands for, in the words of SecretReaderSpec; empty: none. Kubernetes knows service
// accounts as users and as members of groups, too
// (https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects).
func serviceAccounts(kind, namespace, name string) string {
	const users, groups = "system:serviceaccount:", "system:serviceaccounts"
	switch kind {
	case "ServiceAccount":
	case "User":
		rest, is := strings.CutPrefix(name, users)
		if namespace, name, _ = strings.Cut(rest, ":"); !is {
			return ""
		}
	case "Group":
		if name == groups || name == "system:authenticated" {
			return "*/*"
		}
		if rest, is := strings.CutPrefix(name, groups+":"); is && rest != "" && !strings.ContainsAny(rest, "/*") {
			return rest + "/*"
		}
		return ""
	default:
		return ""
	}
	// A name that is no name must not come to mean more than one account.
	if namespace == "" || name == "" || strings.ContainsAny(namespace+name, "/*:") {
		return ""
	}
	return namespace + "/" + name
}
