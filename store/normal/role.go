package normal

import (
	"encoding/json"
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// Role is the part of a Role or ClusterRole that is read. ListsSecrets reports whether the role grants the verb list on
// all Secrets in its scope. As in istiod, a proxy receives private keys only if its service account has this right
// (istio: pilot/pkg/credentials/kube/secrets.go, Authorize).
type Role struct{ ListsSecrets bool }

// IsRole reports whether an object is a Role or a ClusterRole.
func IsRole(id object.ID) bool {
	return id.Group == model.GroupRBAC && (id.Kind == "Role" || id.Kind == "ClusterRole")
}

// Equal reports whether two Roles grant the same rights. A nil Role is a missing one, and equals only another nil Role.
func (o *Role) Equal(other *Role) bool {
	return o != nil && other != nil && *o == *other || o == nil && other == nil
}

// ParseRole parses a Role or ClusterRole. The wildcard * in a rule includes Secrets and the verb list. A rule for
// Secrets with resourceNames does not grant list
// (https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources). For an aggregated
// ClusterRole, only the rules in the object itself count. If the object cannot be parsed, the Role is nil and the list
// has one problem. In all other cases the list of problems is nil.
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

// bindingRecords returns the record of the service accounts to which a RoleBinding or a ClusterRoleBinding grants the
// verb list on Secrets. It returns nil if the role does not grant this right, or if no service account is bound.
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

// serviceAccounts returns the service accounts that a subject stands for: NAMESPACE/NAME, NAMESPACE/* or */*. The
// result is empty if the subject stands for no service account. A subject of kind User or Group can stand for service
// accounts too (https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects).
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
	// An invalid name must not match more than one account.
	if namespace == "" || name == "" || strings.ContainsAny(namespace+name, "/*:") {
		return ""
	}
	return namespace + "/" + name
}
