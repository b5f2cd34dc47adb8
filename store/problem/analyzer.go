package problem

import (
	"maps"
	"slices"
	"strings"
)

// Analyzer is a second code of a problem, in addition to its Code. It is a code of Istio's analyzers (istioctl analyze,
// https://istio.io/latest/docs/reference/config/analysis/), or a code of Navarch that begins with NAV1. It is empty if
// the problem has no such code. deploy/docs/analysis.md explains each code and its remedy.
type Analyzer string

// The codes, by Istio's names.
const (
	ReferencedResourceNotFound                       Analyzer = "IST0101"
	NamespaceNotInjected                             Analyzer = "IST0102"
	PodMissingProxy                                  Analyzer = "IST0103"
	SchemaValidationError                            Analyzer = "IST0106"
	MisplacedAnnotation                              Analyzer = "IST0107"
	UnknownAnnotation                                Analyzer = "IST0108"
	ConflictingMeshGatewayVirtualServiceHosts        Analyzer = "IST0109"
	ConflictingSidecarWorkloadSelectors              Analyzer = "IST0110"
	MultipleSidecarsWithoutWorkloadSelectors         Analyzer = "IST0111"
	VirtualServiceDestinationPortSelectorRequired    Analyzer = "IST0112"
	DeploymentAssociatedToMultipleServices           Analyzer = "IST0116"
	PortNameIsNotUnderNamingConvention               Analyzer = "IST0118"
	NamespaceMultipleInjectionLabels                 Analyzer = "IST0123"
	InvalidAnnotation                                Analyzer = "IST0125"
	UnknownMeshNetworksServiceRegistry               Analyzer = "IST0126"
	NoMatchingWorkloadsFound                         Analyzer = "IST0127"
	NoServerCertificateVerificationDestinationLevel  Analyzer = "IST0128"
	NoServerCertificateVerificationPortLevel         Analyzer = "IST0129"
	VirtualServiceUnreachableRule                    Analyzer = "IST0130"
	VirtualServiceIneffectiveMatch                   Analyzer = "IST0131"
	VirtualServiceHostNotFoundInGateway              Analyzer = "IST0132"
	SchemaWarning                                    Analyzer = "IST0133"
	ServiceEntryAddressesRequired                    Analyzer = "IST0134"
	DeprecatedAnnotation                             Analyzer = "IST0135"
	AlphaAnnotation                                  Analyzer = "IST0136"
	DeploymentConflictingPorts                       Analyzer = "IST0137"
	GatewayDuplicateCertificate                      Analyzer = "IST0138"
	InvalidWebhook                                   Analyzer = "IST0139"
	IngressRouteRulesNotAffected                     Analyzer = "IST0140"
	InvalidApplicationUID                            Analyzer = "IST0144"
	ConflictingGateways                              Analyzer = "IST0145"
	ImageAutoWithoutInjectionWarning                 Analyzer = "IST0146"
	ImageAutoWithoutInjectionError                   Analyzer = "IST0147"
	NamespaceInjectionEnabledByDefault               Analyzer = "IST0148"
	JwtClaimBasedRoutingWithoutRequestAuthN          Analyzer = "IST0149"
	ExternalNameServiceTypeInvalidPortName           Analyzer = "IST0150"
	EnvoyFilterUsesRelativeOperation                 Analyzer = "IST0151"
	EnvoyFilterUsesReplaceOperationIncorrectly       Analyzer = "IST0152"
	EnvoyFilterUsesAddOperationIncorrectly           Analyzer = "IST0153"
	EnvoyFilterUsesRemoveOperationIncorrectly        Analyzer = "IST0154"
	EnvoyFilterUsesRelativeOperationWithProxyVersion Analyzer = "IST0155"
	UnsupportedGatewayAPIVersion                     Analyzer = "IST0156"
	InvalidTelemetryProvider                         Analyzer = "IST0157"
	PodsIstioProxyImageMismatchInNamespace           Analyzer = "IST0158"
	ConflictingTelemetryWorkloadSelectors            Analyzer = "IST0159"
	MultipleTelemetriesWithoutWorkloadSelectors      Analyzer = "IST0160"
	InvalidGatewayCredential                         Analyzer = "IST0161"
	GatewayPortNotDefinedOnService                   Analyzer = "IST0162"
	ReferencedInternalGateway                        Analyzer = "IST0165"
	IneffectiveSelector                              Analyzer = "IST0166"
	MultiClusterInconsistentService                  Analyzer = "IST0170"
	NegativeConditionStatus                          Analyzer = "IST0171"
	FutureUnsupportedGatewayAPIVersion               Analyzer = "IST0172"
	DestinationRuleSubsetNotSelectPods               Analyzer = "IST0173"
	UnknownDestinationRuleHost                       Analyzer = "IST0174"
	JwksUriFetchUnrestricted                         Analyzer = "IST0175"
	GatewayAPICRDVersionBelowMinimum                 Analyzer = "IST0176"
	ConflictingServiceEntryProtocol                  Analyzer = "IST0177"
)

// The codes that Istio does not have.
const (
	RouteWithoutEndpoints   Analyzer = "NAV1001" // a route leads to a service without a ready endpoint
	CertificateEnds         Analyzer = "NAV1002" // a certificate in a Secret ends soon, or has ended
	PolicyCloses            Analyzer = "NAV1003" // a policy refuses all requests, because it is invalid or not supported
	ImportedHostNotFound    Analyzer = "NAV1004" // a Sidecar imports a host that does not exist
	RefusedByProxies        Analyzer = "NAV1005" // proxies refuse a version of a resource
	VersionWithheld         Analyzer = "NAV1006" // a version is withheld, because several proxies refused it
	TenantNearBudget        Analyzer = "NAV1007" // a tenant uses most of a budget
	AuthorityEnds           Analyzer = "NAV1008" // the certificate of an authority ends soon, or has ended
	ClusterStale            Analyzer = "NAV1009" // a cluster other than the config cluster cannot be read
	PlaintextToStrict       Analyzer = "NAV1010" // a DestinationRule disables mTLS to workloads that accept only mTLS
	ServiceWithoutEndpoints Analyzer = "NAV1011" // a Service has no ready endpoint
	PatchWithoutEffect      Analyzer = "NAV1012" // a patch of an EnvoyFilter changes nothing of the connected proxies
	ImportWithoutEffect     Analyzer = "NAV1013" // an import of a Sidecar adds no host
	UsedHostNotImported     Analyzer = "NAV1014" // an EnvoyFilter sends requests to a host that a Sidecar does not import
	ViewsMultiplied         Analyzer = "NAV1015" // an object makes proxies of one namespace differ in their configuration
	ProxyOverBudget         Analyzer = "NAV1016" // the configuration of a proxy has more bytes than the operator's budget
	SeveralWriters          Analyzer = "NAV1017" // several field managers write one field of an object
	CertificateNotRenewed   Analyzer = "NAV1018" // nothing renews a certificate, or its renewal fails
)

// analyzers has the name and the severity of each code. For Istio's codes, name and severity are Istio's (istio:
// pkg/config/analysis/msg/messages.yaml).
var analyzers = map[Analyzer]struct {
	name     string
	severity Severity
}{
	ReferencedResourceNotFound:                       {"ReferencedResourceNotFound", Error},
	NamespaceNotInjected:                             {"NamespaceNotInjected", Info},
	PodMissingProxy:                                  {"PodMissingProxy", Warning},
	SchemaValidationError:                            {"SchemaValidationError", Error},
	MisplacedAnnotation:                              {"MisplacedAnnotation", Warning},
	UnknownAnnotation:                                {"UnknownAnnotation", Warning},
	ConflictingMeshGatewayVirtualServiceHosts:        {"ConflictingMeshGatewayVirtualServiceHosts", Error},
	ConflictingSidecarWorkloadSelectors:              {"ConflictingSidecarWorkloadSelectors", Error},
	MultipleSidecarsWithoutWorkloadSelectors:         {"MultipleSidecarsWithoutWorkloadSelectors", Error},
	VirtualServiceDestinationPortSelectorRequired:    {"VirtualServiceDestinationPortSelectorRequired", Error},
	DeploymentAssociatedToMultipleServices:           {"DeploymentAssociatedToMultipleServices", Warning},
	PortNameIsNotUnderNamingConvention:               {"PortNameIsNotUnderNamingConvention", Info},
	NamespaceMultipleInjectionLabels:                 {"NamespaceMultipleInjectionLabels", Warning},
	InvalidAnnotation:                                {"InvalidAnnotation", Warning},
	UnknownMeshNetworksServiceRegistry:               {"UnknownMeshNetworksServiceRegistry", Error},
	NoMatchingWorkloadsFound:                         {"NoMatchingWorkloadsFound", Warning},
	NoServerCertificateVerificationDestinationLevel:  {"NoServerCertificateVerificationDestinationLevel", Warning},
	NoServerCertificateVerificationPortLevel:         {"NoServerCertificateVerificationPortLevel", Warning},
	VirtualServiceUnreachableRule:                    {"VirtualServiceUnreachableRule", Warning},
	VirtualServiceIneffectiveMatch:                   {"VirtualServiceIneffectiveMatch", Info},
	VirtualServiceHostNotFoundInGateway:              {"VirtualServiceHostNotFoundInGateway", Warning},
	SchemaWarning:                                    {"SchemaWarning", Warning},
	ServiceEntryAddressesRequired:                    {"ServiceEntryAddressesRequired", Warning},
	DeprecatedAnnotation:                             {"DeprecatedAnnotation", Info},
	AlphaAnnotation:                                  {"AlphaAnnotation", Info},
	DeploymentConflictingPorts:                       {"DeploymentConflictingPorts", Warning},
	GatewayDuplicateCertificate:                      {"GatewayDuplicateCertificate", Warning},
	InvalidWebhook:                                   {"InvalidWebhook", Error},
	IngressRouteRulesNotAffected:                     {"IngressRouteRulesNotAffected", Warning},
	InvalidApplicationUID:                            {"InvalidApplicationUID", Warning},
	ConflictingGateways:                              {"ConflictingGateways", Error},
	ImageAutoWithoutInjectionWarning:                 {"ImageAutoWithoutInjectionWarning", Warning},
	ImageAutoWithoutInjectionError:                   {"ImageAutoWithoutInjectionError", Error},
	NamespaceInjectionEnabledByDefault:               {"NamespaceInjectionEnabledByDefault", Info},
	JwtClaimBasedRoutingWithoutRequestAuthN:          {"JwtClaimBasedRoutingWithoutRequestAuthN", Error},
	ExternalNameServiceTypeInvalidPortName:           {"ExternalNameServiceTypeInvalidPortName", Warning},
	EnvoyFilterUsesRelativeOperation:                 {"EnvoyFilterUsesRelativeOperation", Warning},
	EnvoyFilterUsesReplaceOperationIncorrectly:       {"EnvoyFilterUsesReplaceOperationIncorrectly", Error},
	EnvoyFilterUsesAddOperationIncorrectly:           {"EnvoyFilterUsesAddOperationIncorrectly", Error},
	EnvoyFilterUsesRemoveOperationIncorrectly:        {"EnvoyFilterUsesRemoveOperationIncorrectly", Error},
	EnvoyFilterUsesRelativeOperationWithProxyVersion: {"EnvoyFilterUsesRelativeOperationWithProxyVersion", Warning},
	UnsupportedGatewayAPIVersion:                     {"UnsupportedGatewayAPIVersion", Error},
	InvalidTelemetryProvider:                         {"InvalidTelemetryProvider", Warning},
	PodsIstioProxyImageMismatchInNamespace:           {"PodsIstioProxyImageMismatchInNamespace", Warning},
	ConflictingTelemetryWorkloadSelectors:            {"ConflictingTelemetryWorkloadSelectors", Error},
	MultipleTelemetriesWithoutWorkloadSelectors:      {"MultipleTelemetriesWithoutWorkloadSelectors", Error},
	InvalidGatewayCredential:                         {"InvalidGatewayCredential", Error},
	GatewayPortNotDefinedOnService:                   {"GatewayPortNotDefinedOnService", Warning},
	ReferencedInternalGateway:                        {"ReferencedInternalGateway", Warning},
	IneffectiveSelector:                              {"IneffectiveSelector", Warning},
	MultiClusterInconsistentService:                  {"MultiClusterInconsistentService", Warning},
	NegativeConditionStatus:                          {"NegativeConditionStatus", Warning},
	FutureUnsupportedGatewayAPIVersion:               {"FutureUnsupportedGatewayAPIVersion", Warning},
	DestinationRuleSubsetNotSelectPods:               {"DestinationRuleSubsetNotSelectPods", Error},
	UnknownDestinationRuleHost:                       {"UnknownDestinationRuleHost", Warning},
	JwksUriFetchUnrestricted:                         {"JwksUriFetchUnrestricted", Warning},
	GatewayAPICRDVersionBelowMinimum:                 {"GatewayAPICRDVersionBelowMinimum", Warning},
	ConflictingServiceEntryProtocol:                  {"ConflictingServiceEntryProtocol", Warning},
	RouteWithoutEndpoints:                            {"RouteWithoutEndpoints", Warning},
	CertificateEnds:                                  {"CertificateEnds", Warning},
	PolicyCloses:                                     {"PolicyCloses", Error},
	ImportedHostNotFound:                             {"ImportedHostNotFound", Warning},
	RefusedByProxies:                                 {"RefusedByProxies", Error},
	VersionWithheld:                                  {"VersionWithheld", Error},
	TenantNearBudget:                                 {"TenantNearBudget", Warning},
	AuthorityEnds:                                    {"AuthorityEnds", Warning},
	ClusterStale:                                     {"ClusterStale", Error},
	PlaintextToStrict:                                {"PlaintextToStrict", Error},
	ServiceWithoutEndpoints:                          {"ServiceWithoutEndpoints", Info},
	PatchWithoutEffect:                               {"PatchWithoutEffect", Warning},
	ImportWithoutEffect:                              {"ImportWithoutEffect", Info},
	UsedHostNotImported:                              {"UsedHostNotImported", Warning},
	ViewsMultiplied:                                  {"ViewsMultiplied", Warning},
	ProxyOverBudget:                                  {"ProxyOverBudget", Warning},
	SeveralWriters:                                   {"SeveralWriters", Warning},
	CertificateNotRenewed:                            {"CertificateNotRenewed", Warning},
}

// Analyzers returns every code of this build, sorted. The caller owns the result.
func Analyzers() []Analyzer { return slices.Sorted(maps.Keys(analyzers)) }

// Name returns Istio's or Navarch's name of the code. It is empty if this build does not know the code.
func (a Analyzer) Name() string { return analyzers[a].name }

// Severity returns the severity of the code in navarchctl analyze. It is empty if this build does not know the code.
// Outside of navarchctl analyze, each problem states its own severity.
func (a Analyzer) Severity() Severity { return analyzers[a].severity }

// Own reports whether the code is one of Navarch's.
func (a Analyzer) Own() bool { return strings.HasPrefix(string(a), "NAV") }

// Suffix returns the code as the end of a message, " [IST0101]". It is empty without a code.
func (a Analyzer) Suffix() string {
	if a == "" {
		return ""
	}
	return " [" + string(a) + "]"
}
