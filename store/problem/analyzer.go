package problem

// Analyzer is the code of Istio's analyzers (istioctl analyze) for a problem, in addition to our Code; empty if they
// have no code for it (https://istio.io/latest/docs/reference/config/analysis/). deploy/docs/analysis.md explains each
// code and its remedy.
type Analyzer string

// The codes, by Istio's names.
const (
	ReferencedResourceNotFound                  Analyzer = "IST0101"
	MisplacedAnnotation                         Analyzer = "IST0107"
	UnknownAnnotation                           Analyzer = "IST0108"
	ConflictingMeshGatewayVirtualServiceHosts   Analyzer = "IST0109"
	ConflictingSidecarWorkloadSelectors         Analyzer = "IST0110"
	MultipleSidecarsWithoutWorkloadSelectors    Analyzer = "IST0111"
	NoMatchingWorkloadsFound                    Analyzer = "IST0127"
	VirtualServiceUnreachableRule               Analyzer = "IST0130"
	VirtualServiceIneffectiveMatch              Analyzer = "IST0131"
	VirtualServiceHostNotFoundInGateway         Analyzer = "IST0132"
	ServiceEntryAddressesRequired               Analyzer = "IST0134"
	InvalidApplicationUID                       Analyzer = "IST0144"
	EnvoyFilterUsesReplaceOperationIncorrectly  Analyzer = "IST0152"
	EnvoyFilterUsesAddOperationIncorrectly      Analyzer = "IST0153"
	EnvoyFilterUsesRemoveOperationIncorrectly   Analyzer = "IST0154"
	InvalidTelemetryProvider                    Analyzer = "IST0157"
	ConflictingTelemetryWorkloadSelectors       Analyzer = "IST0159"
	MultipleTelemetriesWithoutWorkloadSelectors Analyzer = "IST0160"
	ReferencedInternalGateway                   Analyzer = "IST0165"
	DestinationRuleSubsetNotSelectPods          Analyzer = "IST0173"
	UnknownDestinationRuleHost                  Analyzer = "IST0174"
	ConflictingServiceEntryProtocol             Analyzer = "IST0177"
)

// analyzerNames are Istio's names of the codes (istio: pkg/config/analysis/msg/messages.yaml).
var analyzerNames = map[Analyzer]string{
	ReferencedResourceNotFound:                  "ReferencedResourceNotFound",
	MisplacedAnnotation:                         "MisplacedAnnotation",
	UnknownAnnotation:                           "UnknownAnnotation",
	ConflictingMeshGatewayVirtualServiceHosts:   "ConflictingMeshGatewayVirtualServiceHosts",
	ConflictingSidecarWorkloadSelectors:         "ConflictingSidecarWorkloadSelectors",
	MultipleSidecarsWithoutWorkloadSelectors:    "MultipleSidecarsWithoutWorkloadSelectors",
	NoMatchingWorkloadsFound:                    "NoMatchingWorkloadsFound",
	VirtualServiceUnreachableRule:               "VirtualServiceUnreachableRule",
	VirtualServiceIneffectiveMatch:              "VirtualServiceIneffectiveMatch",
	VirtualServiceHostNotFoundInGateway:         "VirtualServiceHostNotFoundInGateway",
	ServiceEntryAddressesRequired:               "ServiceEntryAddressesRequired",
	InvalidApplicationUID:                       "InvalidApplicationUID",
	EnvoyFilterUsesReplaceOperationIncorrectly:  "EnvoyFilterUsesReplaceOperationIncorrectly",
	EnvoyFilterUsesAddOperationIncorrectly:      "EnvoyFilterUsesAddOperationIncorrectly",
	EnvoyFilterUsesRemoveOperationIncorrectly:   "EnvoyFilterUsesRemoveOperationIncorrectly",
	InvalidTelemetryProvider:                    "InvalidTelemetryProvider",
	ConflictingTelemetryWorkloadSelectors:       "ConflictingTelemetryWorkloadSelectors",
	MultipleTelemetriesWithoutWorkloadSelectors: "MultipleTelemetriesWithoutWorkloadSelectors",
	ReferencedInternalGateway:                   "ReferencedInternalGateway",
	DestinationRuleSubsetNotSelectPods:          "DestinationRuleSubsetNotSelectPods",
	UnknownDestinationRuleHost:                  "UnknownDestinationRuleHost",
	ConflictingServiceEntryProtocol:             "ConflictingServiceEntryProtocol",
}

// Name returns Istio's name of the code; empty if this build does not know the code.
func (a Analyzer) Name() string { return analyzerNames[a] }

// Suffix returns the code as the end of a message, " [IST0101]"; empty without a code.
func (a Analyzer) Suffix() string {
	if a == "" {
		return ""
	}
	return " [" + string(a) + "]"
}
