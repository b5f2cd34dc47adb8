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

// MergesBootstrap says whether a patch merges something into the bootstrap. Its context says nothing, and no other operation is for it, as in istiod
// (pilot/pkg/xds/bootstrapds.go).
func MergesBootstrap(p model.Patch) bool {
	return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_BOOTSTRAP && operation(p) == networkingv1.EnvoyFilter_Patch_MERGE
}

// agentsClusters are the clusters by which Envoy speaks to its agent.
var agentsClusters = []string{"xds-grpc", xds.SDSCluster, "prometheus_stats"}

// agentsOwn says what a patch states of the bootstrap that is its agent's alone; nil: nothing. By these the agent, and the control plane, know whom they
// speak to. Another author could not be kept from more: who writes the EnvoyFilters of a proxy decides what it does.
func agentsOwn(p model.Patch, b *bootstrapv3.Bootstrap) error {
	own := func(field, what string) error {
		return faultOf(p, problem.NotSupported, "patch.value."+field, errors.New(what+": the agent's own, which patches leave as it is"))
	}
	switch {
	case b.GetNode() != nil:
		return own("node", "who the proxy is")
	case b.GetAdmin().GetAddress() != nil:
		return own("admin.address", "where the admin interface listens")
	case b.GetDynamicResources() != nil:
		return own("dynamic_resources", "where configuration comes from")
	}
	for i, c := range b.GetStaticResources().GetClusters() {
		if slices.Contains(agentsClusters, c.GetName()) {
			return own(fmt.Sprintf("static_resources.clusters[%d].name", i), c.GetName())
		}
	}
	return nil
}
