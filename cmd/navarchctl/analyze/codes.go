package analyze

import (
	"cmp"
	"strings"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Reporter is the part of Navarch that reports a code. navarchctl analyze reports the codes of all parts.
type Reporter string

// The reporters. The leader reports the problems of SchemaValidationError and SchemaWarning too, but without this code:
// they have a problem.Code, and only navarchctl analyze adds the code of Istio's webhook (schemaCode).
const (
	Leader   Reporter = "leader"   // navarchd's leader, continuously, from the configuration of the mesh
	Replicas Reporter = "replicas" // navarchd's replicas, continuously, from the configuration of connected proxies
	Analyze  Reporter = "analyze"  // only navarchctl analyze
)

// reporters contains the codes that a part of navarchd reports too.
var reporters = map[problem.Analyzer]Reporter{
	problem.ReferencedResourceNotFound:                  Leader,
	problem.SchemaValidationError:                       Leader,
	problem.MisplacedAnnotation:                         Leader,
	problem.UnknownAnnotation:                           Leader,
	problem.ConflictingMeshGatewayVirtualServiceHosts:   Leader,
	problem.ConflictingSidecarWorkloadSelectors:         Leader,
	problem.MultipleSidecarsWithoutWorkloadSelectors:    Leader,
	problem.NoMatchingWorkloadsFound:                    Leader,
	problem.VirtualServiceUnreachableRule:               Leader,
	problem.VirtualServiceIneffectiveMatch:              Leader,
	problem.VirtualServiceHostNotFoundInGateway:         Leader,
	problem.SchemaWarning:                               Leader,
	problem.ServiceEntryAddressesRequired:               Leader,
	problem.InvalidApplicationUID:                       Leader,
	problem.EnvoyFilterUsesReplaceOperationIncorrectly:  Leader,
	problem.EnvoyFilterUsesAddOperationIncorrectly:      Leader,
	problem.EnvoyFilterUsesRemoveOperationIncorrectly:   Leader,
	problem.ConflictingTelemetryWorkloadSelectors:       Leader,
	problem.MultipleTelemetriesWithoutWorkloadSelectors: Leader,
	problem.ReferencedInternalGateway:                   Leader,
	problem.DestinationRuleSubsetNotSelectPods:          Leader,
	problem.UnknownDestinationRuleHost:                  Leader,
	problem.ConflictingServiceEntryProtocol:             Leader,
	problem.RouteWithoutEndpoints:                       Leader,

	problem.TenantNearBudget: Leader,
	problem.ClusterStale:     Leader,

	problem.RefusedByProxies:               Replicas,
	problem.VersionWithheld:                Replicas,
	problem.ConflictingGateways:            Replicas,
	problem.GatewayPortNotDefinedOnService: Replicas,

	problem.JwtClaimBasedRoutingWithoutRequestAuthN: Replicas,
	problem.InvalidTelemetryProvider:                Replicas, // for objects of the root namespace: the leader
}

// ReporterOf returns the part of Navarch that reports a code. For unknown codes it returns Analyze.
func ReporterOf(code problem.Analyzer) Reporter { return cmp.Or(reporters[code], Analyze) }

// Codes returns every code that this build knows, of Istio and of Navarch, sorted. The caller owns the result.
func Codes() []problem.Analyzer { return problem.Analyzers() }

// schemaCode returns the code that Istio's webhook uses for an error or a warning about an object of Istio's kinds. It
// is for problems whose field Analyzer is empty. If the webhook has no code for the problem, the result is "".
func schemaCode(p object.Problem) problem.Analyzer {
	switch {
	case !strings.HasSuffix(p.ID.Group, ".istio.io"):
	case p.Severity == problem.Error && (p.Code == problem.Invalid || p.Code == problem.Required):
		return problem.SchemaValidationError
	case p.Severity == problem.Warning && (p.Code == problem.Invalid || p.Code == problem.Required || p.Code == problem.NoEffect):
		return problem.SchemaWarning
	}
	return ""
}
