package patch

import (
	"slices"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// lists interns the lists of patches that Effective passes to build. The table references them weakly.
var lists intern.Table[model.Patch]

// VersionOf returns r.Version, or err if err is not nil. It converts the results of a builder to the results that
// Effective expects of its argument build.
func VersionOf(r *xds.Resource, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return r.Version, nil
}

// Effective returns the patches that change a resource, in order of application; nil if no patch does. build builds
// the resource with a list of patches and returns its version. build must return equal versions for equal lists. An
// error of build counts as a version. A patch is effective in two cases: the version changes when the patch is added
// to the patches before it, or the version changes when the patch is removed from all patches. With n patches,
// Effective calls build n+1 times, and once more for each patch to which the first case does not apply.
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
