package resolve

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// mergeMatches combines the matches of a delegating route (roots) with the matches of a delegate's route (leaves). The
// result has one match for each pair without a conflict. If one list is empty, the result is the other list. If a match
// in leaves conflicts with all matches in roots, the delegate's route must be left out. The second result is then the
// index of this match in leaves. If there is no such match, the second result is -1.
func mergeMatches(roots, leaves []*networkingv1.HTTPMatchRequest) (out []*networkingv1.HTTPMatchRequest, contradicts int) {
	if len(roots) == 0 {
		return leaves, -1
	}
	if len(leaves) == 0 {
		return roots, -1
	}
	for i, leaf := range leaves {
		before := len(out)
		for _, root := range roots {
			if !conflict(root, leaf) {
				out = append(out, mergeMatch(root, leaf))
			}
		}
		if len(out) == before {
			return nil, i
		}
	}
	return out, -1
}

// mergeMatch combines two matches. Conditions of leaf override those of root.
func mergeMatch(root, leaf *networkingv1.HTTPMatchRequest) *networkingv1.HTTPMatchRequest {
	out := &networkingv1.HTTPMatchRequest{}
	fill(out, leaf)
	fill(out, root)
	out.Name = joinNames(root.GetName(), leaf.GetName())
	out.Headers = union(root.GetHeaders(), leaf.GetHeaders())
	out.WithoutHeaders = union(root.GetWithoutHeaders(), leaf.GetWithoutHeaders())
	out.QueryParams = union(root.GetQueryParams(), leaf.GetQueryParams())
	out.SourceLabels = union(root.GetSourceLabels(), leaf.GetSourceLabels())
	return out
}

// union returns the entries of two maps. For a key in both maps it uses the value in leaf. The result may be one of the
// two maps.
func union[V any](root, leaf map[string]V) map[string]V {
	if len(root) == 0 {
		return leaf
	}
	if len(leaf) == 0 {
		return root
	}
	all := maps.Clone(root)
	maps.Copy(all, leaf)
	return all
}

// conflict reports whether a delegate's match (leaf) contradicts the match of the delegating route (root). A leaf that
// contradicts root may match requests that root does not match.
func conflict(root, leaf *networkingv1.HTTPMatchRequest) bool {
	return outside(root.GetUri(), leaf.GetUri()) || outside(root.GetScheme(), leaf.GetScheme()) ||
		outside(root.GetMethod(), leaf.GetMethod()) || outside(root.GetAuthority(), leaf.GetAuthority()) ||
		anyOutside(root.GetHeaders(), leaf.GetHeaders()) ||
		anyOutside(root.GetHeaders(), leaf.GetWithoutHeaders()) || // as in istiod, which compares with the root's headers
		anyOutside(root.GetQueryParams(), leaf.GetQueryParams()) ||
		root.GetIgnoreUriCase() != leaf.GetIgnoreUriCase() ||
		root.GetPort() != 0 && leaf.GetPort() != 0 && root.GetPort() != leaf.GetPort() ||
		root.GetSourceNamespace() != "" && root.GetSourceNamespace() != leaf.GetSourceNamespace() ||
		model.Contradict(root.GetSourceLabels(), leaf.GetSourceLabels()) ||
		otherGateways(root.GetGateways(), leaf.GetGateways())
}

// anyOutside reports whether leaves has a match that the root's match of the same name does not cover (outside).
// Names that are not in roots do not count.
func anyOutside(roots, leaves map[string]*networkingv1.StringMatch) bool {
	for name, leaf := range leaves {
		if outside(roots[name], leaf) {
			return true
		}
	}
	return false
}

// otherGateways reports whether leaf has a gateway that is missing from root. It returns false if root is empty.
func otherGateways(root, leaf []string) bool {
	return len(root) > 0 && slices.ContainsFunc(leaf, func(g string) bool { return !slices.Contains(root, g) })
}

// outside reports whether root does not cover leaf. A match covers another one if it matches all texts that the other
// one matches. A regular expression neither covers a match nor is covered by one. As in istiod, the same holds for a
// match that only requires presence. If root or leaf is nil, the result is false.
func outside(root, leaf *networkingv1.StringMatch) bool {
	if root == nil || leaf == nil {
		return false
	}
	if exact := root.GetExact(); exact != "" {
		return leaf.GetExact() != exact
	}
	prefix, value := root.GetPrefix(), cmp.Or(leaf.GetExact(), leaf.GetPrefix())
	return prefix == "" || !strings.HasPrefix(value, prefix)
}
