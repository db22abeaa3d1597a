/* Lists of tensors, as kernels of the hot path are given and answer them.
 *
 * torch's conversions would make a vector of stable Tensors: three objects of each tensor where one is
 * enough. */
#ifndef PAGESTASH_CSRC_HANDLES_H
#define PAGESTASH_CSRC_HANDLES_H

#include "library.h"

#include <torch/csrc/stable/library.h>

#include <vector>

namespace pagestash
{

/* Tensors that are owned here. */
class Handles
{
  public:
    Handles() = default;
    Handles(const Handles &) = delete;
    ~Handles()
    {
        for (AtenTensorHandle tensor : all)
            aoti_torch_delete_tensor_object(tensor);
    }

    /* The elements of a list that a kernel was given. */
    void take(StableIValue given)
    {
        const List list = {torch::stable::detail::to<StableListHandle>(given)};
        size_t size = 0;
        list.check(torch_list_size(list.handle, &size));
        all.reserve(size);
        for (size_t i = 0; i < size; i++) {
            StableIValue element = 0;
            list.check(torch_list_get_item(list.handle, i, &element));
            all.push_back(torch::stable::detail::to<AtenTensorHandle>(element));
        }
    }

    /* A list of them, for a kernel to answer; nothing is owned any more. */
    StableIValue give()
    {
        List list = {};
        list.check(torch_new_list_reserve_size(all.size(), &list.handle));
        std::vector<AtenTensorHandle> tensors;
        tensors.swap(all);
        for (AtenTensorHandle tensor : tensors)
            list.check(torch_list_push_back(list.handle, torch::stable::detail::from(tensor)));
        const StableListHandle given = list.handle;
        list.handle = nullptr;
        return torch::stable::detail::from(given);
    }

    std::vector<AtenTensorHandle> all;

  private:
    struct List {
        StableListHandle handle;

        ~List()
        {
            if (handle)
                torch_delete_list(handle);
        }

        static void check(AOTITorchError error)
        {
            if (error != AOTI_TORCH_SUCCESS)
                fail("pagestash: torch makes no list of tensors");
        }
    };
};

} // namespace pagestash

#endif
