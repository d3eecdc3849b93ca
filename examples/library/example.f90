! The same as example.c in Fortran: it trains plans/toy.lua as the library `model`, on two ranks. It
! gives each step its batch as whole arrays, which are those that the model drew for itself.
program example
  use, intrinsic :: iso_c_binding
  use mpi
  use model
  implicit none

  type(c_ptr) :: toy
  type(model_options) :: options
  type(model_part) :: part
  real(c_float), target :: input(10, 20), target(5, 20)   ! in C: [20][10] and [20][5]
  real(c_float), pointer :: values(:)
  real(c_float) :: loss
  integer :: error, rank, i

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  options%threads = 1
  call check(model_open(MPI_COMM_WORLD, options, toy), "model_open")

  ! Both inputs are whole on each rank.
  call check(model_tensor(toy, "input", part), "model_tensor")
  call c_f_pointer(part%data, values, [size(input)])
  input = reshape(values, shape(input))
  call check(model_tensor(toy, "target", part), "model_tensor")
  call c_f_pointer(part%data, values, [size(target)])
  target = reshape(values, shape(target))

  do i = 1, 10
    call check(model_step(toy, [c_loc(input), c_loc(target)], loss), "model_step")
    if (rank == 0) print "(es15.8)", loss
  end do

  call model_close(toy)
  call MPI_Finalize(error)

contains

  subroutine check(status, what)
    integer(c_int), intent(in) :: status
    character(*), intent(in) :: what
    integer :: ignored
    if (status == model_ok) return
    print *, what, ": ", model_error(toy)
    call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
  end subroutine
end program
