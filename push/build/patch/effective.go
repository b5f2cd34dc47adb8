package patch

import (
	"slices"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// lists interns the lists of patches that Effective builds with. Its entries are weak.
var lists intern.Table[model.Patch]

// VersionOf returns the version of a resource, or the error: the result of a build function for Effective.
func VersionOf(r *xds.Resource, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return r.Version, nil
}

// Effective returns the patches of a Spec that change the resource that is built from it, in order. A patch changes the
// resource if the version differs with it from the version with only the patches before it, or from the version with
// all other patches. build returns the version of the resource with some of the patches; an error of build counts as a
// version. With n patches, Effective calls build n+1 times, and once more for each patch without a difference to the
// patches before it.
func Effective(
	patches intern.List[model.Patch], build func(intern.List[model.Patch]) (version string, err error),
) (effective []model.Patch) {
	version := func(some []model.Patch) string {
		v, err := build(lists.List(some...))
		if err != nil {
			return "error: " + err.Error()
		}
		return v
	}
	all := patches.All()
	if len(all) == 0 {
		return nil
	}
	before, with := version(nil), version(all)
	for i, p := range all {
		now := with
		if i < len(all)-1 {
			now = version(all[:i+1])
		}
		if now != before || version(slices.Delete(slices.Clone(all), i, i+1)) != with {
			effective = append(effective, p)
		}
		before = now
	}
	return effective
}
