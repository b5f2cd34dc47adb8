package input

import "navarch.io/navarch/push/xds"

// Types is a set of resource types.
type Types uint8

// The sets with one type, and All. All contains the types that are planned for hosts and routes. It lacks SDS and ECDS,
// which are planned separately.
const (
	CDS  = Types(1) << xds.Cluster
	EDS  = Types(1) << xds.Endpoint
	LDS  = Types(1) << xds.Listener
	RDS  = Types(1) << xds.Route
	SDS  = Types(1) << xds.Secret
	ECDS = Types(1) << xds.Extension
	All  = CDS | EDS | LDS | RDS
)

// Has reports whether the two sets have a type in common.
func (t Types) Has(other Types) bool { return t&other != 0 }
