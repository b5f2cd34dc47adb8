package patch

import (
	"errors"
	"fmt"
	"slices"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// MergesBootstrap reports whether a patch merges its value into the bootstrap (BOOTSTRAP MERGE). As in istiod
// (pilot/pkg/xds/bootstrapds.go), the context of the patch is ignored. All other operations, MERGE_AND_REPLACE_LIST
// among them, have no effect on the bootstrap.
func MergesBootstrap(p model.Patch) bool {
	return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_BOOTSTRAP &&
		operation(p) == networkingv1.EnvoyFilter_Patch_MERGE
}

// agentClusters are the names of the clusters through which Envoy connects to its agent.
var agentClusters = []string{"xds-grpc", xds.SDSCluster, "prometheus_stats"}

// validateBootstrap returns an error for a field of the bootstrap that only the agent may set. These are the node, the
// address of the admin interface, the dynamic resources, and the clusters of the agent. The agent and the control plane
// rely on these fields. Other fields are not checked, because the author of EnvoyFilters determines the proxy's
// behaviour anyway.
func validateBootstrap(p model.Patch, b *bootstrapv3.Bootstrap) error {
	own := func(field, what string) error {
		return faultOf(p, problem.NotSupported, "patch.value."+field, errors.New(what+" is set by the agent, and patches do not change it"))
	}
	switch {
	case b.GetNode() != nil:
		return own("node", "the identity of the proxy")
	case b.GetAdmin().GetAddress() != nil:
		return own("admin.address", "the address of the admin interface")
	case b.GetDynamicResources() != nil:
		return own("dynamic_resources", "the source of configuration")
	}
	for i, c := range b.GetStaticResources().GetClusters() {
		if slices.Contains(agentClusters, c.GetName()) {
			return own(fmt.Sprintf("static_resources.clusters[%d].name", i), "cluster "+c.GetName())
		}
	}
	return nil
}
