package plan

import (
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/store/mirror"
)

// namedSecret marks the resources of the Secret, so that they are planned again.
func namedSecret(c *change, _ input.Types, e mirror.Edit) { c.secrets[secret.Anywhere(e.Key())] = true }

// referredSecrets marks the resources of the Secrets that the record refers to before or after the edit.
func referredSecrets(c *change, _ input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		for ref := range access.AllReferences(r) {
			c.referred[ref.Name] = true
		}
	}
}

// labelledWorkloads marks the resources of all Secrets that workloads of the record's namespace use.
func labelledWorkloads(c *change, _ input.Types, e mirror.Edit) { c.labelled[e.Key().Namespace] = true }

// grantedRights marks the rights of identities to list Secrets. The identities are those of the record's namespace, or
// of all namespaces for a ClusterRoleBinding.
func grantedRights(c *change, _ input.Types, e mirror.Edit) { c.granted[e.Key().Namespace] = true }
