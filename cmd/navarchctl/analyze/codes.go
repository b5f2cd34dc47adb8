package analyze

import (
	"cmp"
	"strings"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Reporter is the first part of Navarch that reports a code.
type Reporter string

// The reporters. Analyze reports the codes of all of them.
const (
	Leader   Reporter = "leader"   // all the time, from the records of the mesh; the codes of schemas as its own codes
	Replicas Reporter = "replicas" // all the time, from the configuration of the proxies that are connected
	Analyze  Reporter = "analyze"  // this command alone
)

// reporters has the reporters of the codes that not only this command reports.
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
	problem.InvalidTelemetryProvider:       Replicas, // for the root namespace the leader
}

// ReporterOf returns the first part of Navarch that reports a code.
func ReporterOf(code problem.Analyzer) Reporter { return cmp.Or(reporters[code], Analyze) }

// Codes returns the codes that an analysis may report, in order.
func Codes() []problem.Analyzer { return problem.Analyzers() }

// schemaCode returns the code of Istio's webhook for a problem without a code: for an error or a warning about an
// object of Istio.
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
