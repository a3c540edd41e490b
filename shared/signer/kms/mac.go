package kms

import (
	"context"
	"fmt"

	cloudkms "cloud.google.com/go/kms/apiv1"
	"cloud.google.com/go/kms/apiv1/kmspb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fencepost/fencepost/shared/intentmac"
)

var _ intentmac.Service = (*Client)(nil)

// Sum implements [intentmac.Service] with the key version of that full name.
func (c *Client) Sum(ctx context.Context, key string, data []byte) ([]byte, error) {
	answer, err := call(ctx, c, (*cloudkms.KeyManagementClient).MacSign, &kmspb.MacSignRequest{Name: key, Data: data, DataCrc32C: wrapperspb.Int64(checksum(data))})
	switch {
	case err != nil:
		return nil, fmt.Errorf("make a MAC by %s: %w", key, err)
	case answer.GetName() != key, !answer.GetVerifiedDataCrc32C(), !intact(answer.GetMac(), answer.GetMacCrc32C()):
		return nil, fmt.Errorf("make a MAC by %s: %w", key, errCorrupt)
	}
	return answer.GetMac(), nil
}

// Check implements [intentmac.Service]. A damaged answer is an error: it does not decide about the MAC.
func (c *Client) Check(ctx context.Context, key string, data, sum []byte) (bool, error) {
	answer, err := call(ctx, c, (*cloudkms.KeyManagementClient).MacVerify, &kmspb.MacVerifyRequest{
		Name: key, Data: data, DataCrc32C: wrapperspb.Int64(checksum(data)), Mac: sum, MacCrc32C: wrapperspb.Int64(checksum(sum)),
	})
	switch {
	case err != nil:
		return false, fmt.Errorf("check a MAC by %s: %w", key, err)
	case answer.GetName() != key, !answer.GetVerifiedDataCrc32C(), !answer.GetVerifiedMacCrc32C(), answer.GetVerifiedSuccessIntegrity() != answer.GetSuccess():
		return false, fmt.Errorf("check a MAC by %s: %w", key, errCorrupt)
	}
	return answer.GetSuccess(), nil
}
