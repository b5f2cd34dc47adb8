package endpoint

import (
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"navarch.io/navarch/push/xds"
)

// The assignments of clusters with equal members differ only in their names. Examples are the subsets of a rule that
// select by no labels. So the endpoints of a large assignment are encoded as a fragment. The pool (the cache of built
// resources) builds a fragment once for all of these names. The bytes equal those of the whole message.

// sharedFrom is the number of members from which the endpoints of an assignment are a fragment.
const sharedFrom = 256

// form is a Spec or Proxyless.
type form interface {
	Decision() Spec
	message(pace *pacer) *endpointv3.ClusterLoadAssignment
	Shared() (key any, ok bool)
	FragmentInPieces(pause func()) (*xds.Fragment, error)
	Around(f *xds.Fragment) (*xds.Resource, error)
}

// built encodes an assignment without a pool.
func built(s form, pause func()) (*xds.Resource, error) {
	if _, is := s.Shared(); is {
		f, err := s.FragmentInPieces(pause)
		if err != nil {
			return nil, err
		}
		return s.Around(f)
	}
	cla := s.message(&pacer{pause: pause})
	pause()
	return xds.Encode(xds.Endpoint, s.Decision().Cluster, cla)
}

// Shared returns the key of the fragment that BuildInPieces encodes, which is the Spec without a name. ok is false if
// the assignment has few members, and is encoded as a whole.
func (s Spec) Shared() (key any, ok bool) {
	ok = s.Members.Len() >= sharedFrom
	s.Cluster = ""
	return s, ok
}

// FragmentInPieces encodes the endpoints of the assignment. pause and the error are those of BuildInPieces.
func (s Spec) FragmentInPieces(pause func()) (*xds.Fragment, error) { return endpointsOf(s, pause) }

// Around returns the assignment with the result of FragmentInPieces as its endpoints. It fails only if the name is not
// valid UTF-8.
func (s Spec) Around(f *xds.Fragment) (*xds.Resource, error) { return around(s.Cluster, f) }

// Shared returns the key of the fragment, as Spec.Shared does.
func (s Proxyless) Shared() (key any, ok bool) {
	_, ok = s.Spec.Shared()
	s.Cluster = ""
	return s, ok
}

// FragmentInPieces encodes the endpoints of the assignment. pause and the error are those of BuildInPieces.
func (s Proxyless) FragmentInPieces(pause func()) (*xds.Fragment, error) {
	return endpointsOf(s, pause)
}

// Around returns the assignment with the result of FragmentInPieces as its endpoints. It fails only if the name is not
// valid UTF-8.
func (s Proxyless) Around(f *xds.Fragment) (*xds.Resource, error) { return around(s.Cluster, f) }

func endpointsOf(s form, pause func()) (*xds.Fragment, error) {
	cla := s.message(&pacer{pause: pause})
	pause()
	return xds.EncodePart("", &endpointv3.ClusterLoadAssignment{Endpoints: cla.Endpoints})
}

func around(name string, f *xds.Fragment) (*xds.Resource, error) {
	return xds.EncodeRope(xds.Endpoint, name, &endpointv3.ClusterLoadAssignment{ClusterName: name}, []*xds.Fragment{f})
}
