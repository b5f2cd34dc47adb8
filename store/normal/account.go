package normal

import (
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// serviceAccountRecords is a ServiceAccount of a cluster, with which tokens are compared. One in a folder of files says nothing about tokens.
func serviceAccountRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	if obj.UID == "" {
		return nil
	}
	return r.record(model.KindServiceAccount, obj, obj.ID.Name, &model.ServiceAccountSpec{Uid: model.UID(obj.UID)})
}
